//! State written with older types, read as today's.
//!
//! A state's *version* is a number that its owner gives; version and types together are the schema fingerprint in its files
//! ([`super::schema`]). [`Migrations`] is the chain of functions from the oldest version that is still read to the newest. An
//! entry is read as the type of its own version and carried along the chain, one entry at a time, while the state is loaded.
//! Nothing is rewritten on disk: the first snapshot after that is a base in the new version, and the old files go with the
//! checkpoints that name them.
//!
//! Keys stay as they are: another key would be looked for on another worker. Values may stand in something of the engine's (a
//! list's element, a value with its expiry, an option); the functions are written for the value alone.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

use super::expiring::Kept;
use super::handle::StateValue;
use super::list::Element;
use super::schema::{fingerprint, trace};
use crate::snapshot::read_entry;

/// A version of a state's types, and the fingerprint that its files carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaVersion {
    /// The version.
    pub version: u32,
    /// The fingerprint of key type, value type and version.
    pub fingerprint: u64,
}

/// Reads an option of a value of an older version, as one of today's.
type ReadOlder<W> = Arc<dyn Fn(&mut &[u8]) -> Result<Option<W>, OlderEntry> + Send + Sync>;

/// Why an entry of an older version can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OlderEntry {
    /// It doesn't decode as that version's type.
    Decode(String),
    /// A migration refused it.
    Refused { to: u32, reason: String },
}

/// One older version of `W`.
#[derive(Clone)]
pub(crate) struct Older<W> {
    pub(crate) version: u32,
    trace: fn() -> String,
    pub(crate) read: ReadOlder<W>,
}

impl<W> fmt::Debug for Older<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Older(version {})", self.version)
    }
}

impl<W: StateValue> Older<W> {
    fn as_it_is(version: u32) -> Older<W> {
        let read = |bytes: &mut &[u8]| read_entry(bytes).map_err(|e| OlderEntry::Decode(e.to_string()));
        Older { version, trace: trace::<W>, read: Arc::new(read) }
    }

    fn then<B: 'static>(self, to: u32, change: impl Fn(W) -> Result<B, String> + Send + Sync + 'static) -> Older<B> {
        let (version, trace, before) = (self.version, self.trace, self.read);
        let read = move |bytes: &mut &[u8]| {
            let changed = before(bytes)?.map(&change).transpose();
            changed.map_err(|reason| OlderEntry::Refused { to, reason })
        };
        Older { version, trace, read: Arc::new(read) }
    }

    /// The fingerprint of a state with this value type and a key type of this trace.
    pub(crate) fn fingerprint(&self, key: &str) -> u64 {
        fingerprint(self.version, key, &(self.trace)())
    }
}

/// How values of older versions become values of type `V`.
///
/// ```
/// use cutwater_engine::state::Migrations;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct StatsV1 {
///     seconds: u64,
/// }
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct StatsV2 {
///     millis: u64,
/// }
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Stats {
///     millis: u64,
///     /// Unknown for what was counted before version 3.
///     largest: Option<u64>,
/// }
///
/// let migrations: Migrations<Stats> = Migrations::<StatsV1>::since(1)
///     .try_then(2, |old| match old.seconds.checked_mul(1000) {
///         Some(millis) => Ok(StatsV2 { millis }),
///         None => Err(format!("{} seconds can't be said in milliseconds", old.seconds)),
///     })
///     .then(3, |old| Stats { millis: old.millis, largest: None });
/// assert_eq!(migrations.version(), 3);
/// ```
///
/// Register them with [`Stream::migrate`](crate::graph::Stream::migrate) behind the operator. The version of the state is then the
/// last one here; states that nobody has migrated have version 1.
pub struct Migrations<V> {
    version: u32,
    plain: Vec<Older<V>>,
    optional: Vec<Older<Option<V>>>,
    kept: Vec<Older<Kept<V>>>,
    elements: Vec<Older<Element<V>>>,
}

impl<V> fmt::Debug for Migrations<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let older: Vec<u32> = self.plain.iter().map(|older| older.version).collect();
        write!(f, "Migrations({older:?} -> {})", self.version)
    }
}

/// Carries older versions one step further.
fn carry<A: StateValue, B: 'static>(
    older: Vec<Older<A>>,
    own: u32,
    to: u32,
    change: impl Fn(A) -> Result<B, String> + Clone + Send + Sync + 'static,
) -> Vec<Older<B>> {
    older.into_iter().chain([Older::as_it_is(own)]).map(|older| older.then(to, change.clone())).collect()
}

impl<V: StateValue> Migrations<V> {
    /// `V` is the oldest type that is still read, and this is its version; 1 for what has never been migrated.
    pub fn since(version: u32) -> Migrations<V> {
        Migrations { version, plain: vec![], optional: vec![], kept: vec![], elements: vec![] }
    }

    /// From here on values are of type `N`, which `change` makes of the older ones.
    ///
    /// # Panics
    /// If `version` isn't larger than the last one.
    pub fn then<N: StateValue>(self, version: u32, change: impl Fn(V) -> N + Send + Sync + 'static) -> Migrations<N> {
        self.try_then(version, move |value| Ok::<N, String>(change(value)))
    }

    /// As [`Migrations::then`], for changes that aren't possible for every value. An error ends the start: nothing runs, and the
    /// checkpoint stays as it is.
    ///
    /// # Panics
    /// As [`Migrations::then`].
    pub fn try_then<N: StateValue, E: fmt::Display>(
        self,
        version: u32,
        change: impl Fn(V) -> Result<N, E> + Send + Sync + 'static,
    ) -> Migrations<N> {
        assert!(version > self.version, "version {version} can't follow version {}", self.version);
        let change = Arc::new(move |value: V| change(value).map_err(|e| e.to_string()));
        let (in_option, in_kept, in_element) = (change.clone(), change.clone(), change.clone());
        let own = self.version;
        Migrations {
            version,
            plain: carry(self.plain, own, version, move |value| change(value)),
            optional: carry(self.optional, own, version, move |value: Option<V>| value.map(&*in_option).transpose()),
            kept: carry(self.kept, own, version, move |kept: Kept<V>| kept.try_map(&*in_kept)),
            elements: carry(self.elements, own, version, move |element: Element<V>| element.try_map(&*in_element)),
        }
    }

    /// The version of `V`.
    pub fn version(&self) -> u32 {
        self.version
    }
}

/// [`Migrations`] of a value type that isn't known where they are passed on.
pub trait AnyMigrations: fmt::Debug + Send + Sync {
    /// The version of the newest type.
    fn version(&self) -> u32;
    /// A `Vec<Older<W>>` where `W` has this type id; `None` if these are migrations of something else.
    #[doc(hidden)]
    fn older(&self, of: TypeId) -> Option<Box<dyn Any>>;
}

impl<V: StateValue> AnyMigrations for Migrations<V> {
    fn version(&self) -> u32 {
        self.version
    }

    fn older(&self, of: TypeId) -> Option<Box<dyn Any>> {
        let all: [(TypeId, Box<dyn Any>); 4] = [
            (TypeId::of::<V>(), Box::new(self.plain.clone())),
            (TypeId::of::<Option<V>>(), Box::new(self.optional.clone())),
            (TypeId::of::<Kept<V>>(), Box::new(self.kept.clone())),
            (TypeId::of::<Element<V>>(), Box::new(self.elements.clone())),
        ];
        all.into_iter().find(|(id, _)| *id == of).map(|(_, older)| older)
    }
}

/// Migrations that don't end in the type of the state they were registered for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the migrations of state {state:?} end in another type than its values have ({values}); the last .then(..) must give that, \
     or what stands in it"
)]
pub struct OtherValues {
    /// The state.
    pub state: String,
    /// Its value type.
    pub values: &'static str,
}
