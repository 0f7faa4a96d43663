//! Windows: one final result per key and stretch of event time.
//!
//! * Emits: for each key and window with at least one record in time, one result, when the watermark reaches the window's
//!   end; its time is the window's last millisecond. Results are final. They come in the order of the windows' ends and,
//!   within a window, of the keys' canonical encodings, so that every run gives the same sequence per key.
//! * Late: a record all of whose windows have fired; for sessions see [`session`]. With [`Aggregated::with_late`] it comes out
//!   of a second stream; with [`Aggregated::drop_late`] it is counted and dropped. There is no lateness setting: the bound of
//!   the timestamps is the tolerance.
//! * State, in the key group of the key alone. [`Tumbling`]: one aggregate per key and open window, in `windows`. [`Sliding`]:
//!   one per key and open pane, in `panes`; windows share panes, so a record is kept and added once. [`Sessions`]: one per
//!   open session, those of a key together, in `sessions`. Timers are not stored: what is open is the timers. For that keys
//!   are in memory a second time, outside of the state's limit.
//! * At a barrier: the aggregates that changed are written, and up to where windows have fired, per key group: after a
//!   rescale no window fires twice, and late stays late. A firing of a million windows is emitted as there is room, and a
//!   barrier waits for the last of them.
//! * Counts: records in time as *absorbed*, the others as *late*.
//!
//! Reading order: [`tumbling`] (which window is it), `floors.rs` (what has fired), `operator.rs`; then [`sliding`] with
//! `panes.rs`, and [`session`].

mod operator;
mod panes;
pub mod session;
mod shape;
pub mod sliding;
pub mod tumbling;

use std::fmt;
use std::marker::PhantomData;

use cutwater_engine::element::Data;
use cutwater_engine::exchange::CanonicalKey;
use cutwater_engine::graph::{Keyed, OperatorSetup, Outputs, Stream, TimeMode, Timed};
use cutwater_engine::operator::Operator;
use cutwater_engine::state::{StateKey, StateValue};

use self::operator::{Functions, WindowOperator};
use self::panes::PaneOperator;
use self::session::SessionOperator;
pub use self::session::Sessions;
pub use self::sliding::Sliding;
pub use self::tumbling::{Tumbling, Window};

/// The output of results.
const RESULTS: usize = 0;
/// The output of late records.
const LATE: usize = 1;
/// The name under which it is saved up to where windows have fired.
const FIRED: &str = "fired";

/// What windows can be put on: a keyed stream whose records have event times.
#[diagnostic::on_unimplemented(
    message = "there are no windows on `{Self}`: windows need event times and a key",
    label = "not a keyed stream with event times",
    note = "first say when records happened, `.timestamps(|r| r.time, Bounded::seconds(5))`, then divide them, `.key_by(|r| r.key)`"
)]
pub trait Windowable {
    /// The key.
    type Key: 'static;
    /// The record.
    type Record: 'static;

    /// The same stream, with its type known.
    fn into_keyed(self) -> Keyed<Self::Key, Self::Record, Timed>;
}

impl<K: 'static, T: 'static> Windowable for Keyed<K, T, Timed> {
    type Key = K;
    type Record = T;

    fn into_keyed(self) -> Keyed<K, T, Timed> {
        self
    }
}

/// How records are divided into windows: [`Tumbling`], [`Sliding`] or [`Sessions`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't say which windows",
    label = "not windows",
    note = "say `Tumbling::minutes(5)`, `Sliding::hours(1).every_minutes(5)` or `Sessions::minutes(30)`"
)]
pub trait WindowKind: fmt::Debug + Copy + 'static {}
impl WindowKind for Tumbling {}
impl WindowKind for Sliding {}
impl WindowKind for Sessions {}

/// Adds `window` to keyed streams with event times.
pub trait Windows: Sized {
    /// Divides the records of each key into windows of event time.
    ///
    /// ```
    /// use cutwater_engine::graph::Timed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_engine::time::EventTime;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (readings, stream) = rig.input::<(u8, i64), Timed>("readings");
    /// let (sums, late) = stream
    ///     .key_by(|(sensor, _)| *sensor)
    ///     .window(Tumbling::seconds(1))
    ///     .aggregate("sums", || 0, |sum, (_, value)| *sum += value, |sensor, window, sum| (*sensor, window.start, sum))
    ///     .with_late();
    /// let (sums, late) = (rig.collect(sums), rig.collect(late));
    /// rig.push(&readings, vec![(EventTime(10), (1, 5)), (EventTime(900), (1, 6)), (EventTime(1_000), (1, 7))]);
    /// rig.watermark(&readings, EventTime(1_000));
    /// assert_eq!(sums.take_records(), [(EventTime(999), (1, EventTime(0), 11))]);
    /// rig.push(&readings, vec![(EventTime(999), (1, 8))]);
    /// assert_eq!(late.take_records(), [(EventTime(999), (1, 8))]);
    /// ```
    fn window<W: WindowKind>(self, windows: W) -> Windowed<<Self as Windowable>::Key, <Self as Windowable>::Record, W>
    where
        Self: Windowable;
}

// On every stream, so that the compiler can say what is missing instead of that there is no such method.
impl<T: 'static, M: TimeMode> Windows for Stream<T, M> {
    fn window<W: WindowKind>(self, windows: W) -> Windowed<<Self as Windowable>::Key, <Self as Windowable>::Record, W>
    where
        Self: Windowable,
    {
        Windowed { keyed: self.into_keyed(), windows }
    }
}

impl<K: 'static, T: 'static, M: TimeMode> Windows for Keyed<K, T, M> {
    fn window<W: WindowKind>(self, windows: W) -> Windowed<<Self as Windowable>::Key, <Self as Windowable>::Record, W>
    where
        Self: Windowable,
    {
        Windowed { keyed: self.into_keyed(), windows }
    }
}

/// A keyed stream divided into windows, waiting to be told what to make of each.
#[must_use = "say what to make of each window with `.aggregate(..)`"]
pub struct Windowed<K: 'static, T: 'static, W: 'static = Tumbling> {
    keyed: Keyed<K, T, Timed>,
    windows: W,
}

impl<K: 'static, T: 'static, W: fmt::Debug> fmt::Debug for Windowed<K, T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Windowed({:?}, {:?})", self.keyed, self.windows)
    }
}

impl<K, T> Windowed<K, T, Tumbling>
where
    K: Data + CanonicalKey + StateKey,
    T: Data,
{
    /// Makes one value of the records of each key and window: it begins as `init`, `add` puts a record in, and `finish` makes
    /// the result when the window is complete.
    ///
    /// The name must be unique in the job: the open windows are found again by it. Records are added in the order in which
    /// they come, which is not the order of their times.
    pub fn aggregate<A: StateValue, R: Send + 'static>(
        self,
        name: impl Into<String>,
        init: impl Fn() -> A + 'static,
        add: impl Fn(&mut A, &T) + 'static,
        finish: impl Fn(&K, Window, A) -> R + 'static,
    ) -> Aggregated<K, T, R> {
        let (name, windows) = (name.into(), self.windows);
        let kind = format!("windows of {} ms", windows.size_ms());
        aggregated(self.keyed, name, kind, move |with_late, setup| {
            let functions = Functions { init, add, finish, types: PhantomData };
            Box::new(WindowOperator::new(windows, functions, with_late, setup))
        })
    }

    /// Combines the records of each key and window into one: the first is the value, `combine` puts each further one into
    /// it, and `finish` makes the result when the window is complete.
    ///
    /// As [`Windowed::aggregate`] in everything else.
    ///
    /// ```
    /// use cutwater_engine::graph::Timed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_engine::time::EventTime;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (bids, stream) = rig.input::<(u8, u64), Timed>("bids");
    /// let highest = stream
    ///     .key_value(|bid| bid)
    ///     .window(Tumbling::seconds(1))
    ///     .reduce("highest", |highest, bid| *highest = *bid.max(highest), |item, _, highest| (*item, highest))
    ///     .drop_late();
    /// let highest = rig.collect(highest);
    /// rig.push(&bids, vec![(EventTime(1), (1, 30)), (EventTime(2), (1, 40)), (EventTime(3), (1, 20))]);
    /// rig.finish();
    /// assert_eq!(highest.take_records(), [(EventTime(999), (1, 40))]);
    /// ```
    pub fn reduce<R: Send + 'static>(
        self,
        name: impl Into<String>,
        combine: impl Fn(&mut T, &T) + 'static,
        finish: impl Fn(&K, Window, T) -> R + 'static,
    ) -> Aggregated<K, T, R>
    where
        T: StateValue,
    {
        self.aggregate(
            name,
            || None,
            move |value: &mut Option<T>, record| match value {
                Some(value) => combine(value, record),
                None => *value = Some(record.clone()),
            },
            move |key, window, value| finish(key, window, value.expect("a window has at least one record")),
        )
    }
}

/// The parts that differ in how windows are kept, for windows whose aggregates are merged.
macro_rules! merged_windows {
    ($windows:ty, $kind:expr, $operator:ident, $example:literal) => {
        impl<K, T> Windowed<K, T, $windows>
        where
            K: Data + CanonicalKey + StateKey,
            T: Data,
        {
            /// Makes one value of the records of each key and window: it begins as `init`, `add` puts a record in, `merge`
            /// puts in what later records have come to on their own, and `finish` makes the result when the window is
            /// complete.
            ///
            /// It must not matter to the result how records are divided before they are merged. The name must be unique in
            /// the job: what is open is found again by it.
            ///
            #[doc = $example]
            pub fn aggregate<A: StateValue, R: Send + 'static>(
                self,
                name: impl Into<String>,
                init: impl Fn() -> A + 'static,
                add: impl Fn(&mut A, &T) + 'static,
                merge: impl Fn(&mut A, &A) + 'static,
                finish: impl Fn(&K, Window, A) -> R + 'static,
            ) -> Aggregated<K, T, R> {
                let windows = self.windows;
                aggregated(self.keyed, name.into(), $kind(windows), move |with_late, setup| {
                    let functions = Functions { init, add, finish, types: PhantomData };
                    Box::new($operator::new(windows, functions, merge, with_late, setup))
                })
            }

            /// Combines the records of each key and window into one: the first is the value, `combine` puts each further
            /// one into it, or what further ones have come to, and `finish` makes the result when the window is complete.
            ///
            /// As `aggregate` in everything else.
            pub fn reduce<R: Send + 'static>(
                self,
                name: impl Into<String>,
                combine: impl Fn(&mut T, &T) + 'static,
                finish: impl Fn(&K, Window, T) -> R + 'static,
            ) -> Aggregated<K, T, R>
            where
                T: StateValue,
            {
                let add = std::rc::Rc::new(move |value: &mut Option<T>, record: &T| match value {
                    Some(value) => combine(value, record),
                    None => *value = Some(record.clone()),
                });
                let merge = add.clone();
                self.aggregate(
                    name,
                    || None,
                    move |value, record| add(value, record),
                    move |value, more: &Option<T>| more.iter().for_each(|more| merge(value, more)),
                    move |key, window, value| finish(key, window, value.expect("a window has at least one record")),
                )
            }
        }
    };
}

merged_windows!(
    Sliding,
    |w: Sliding| format!("windows of {} ms every {} ms", w.size_ms(), w.slide_ms()),
    PaneOperator,
    "```
use cutwater_engine::graph::Timed;
use cutwater_engine::operator::testing::Rig;
use cutwater_engine::time::EventTime;
use cutwater_operators::prelude::*;

let mut rig = Rig::new();
let (readings, stream) = rig.input::<(u8, i64), Timed>(\"readings\");
let sums = stream
    .key_value(|reading| reading)
    .window(Sliding::seconds(2).every_seconds(1))
    .aggregate(\"sums\", || 0, |sum, n| *sum += n, |sum, more| *sum += more, |_, window, sum| (window.start, sum))
    .drop_late();
let sums = rig.collect(sums);
rig.push(&readings, vec![(EventTime(500), (1, 5)), (EventTime(1_500), (1, 6))]);
rig.finish();
let expected = [(999, (-1_000, 5)), (1_999, (0, 11)), (2_999, (1_000, 6))];
assert_eq!(sums.take_records(), expected.map(|(at, (start, sum))| (EventTime(at), (EventTime(start), sum))));
```"
);

merged_windows!(
    Sessions,
    |w: Sessions| format!("sessions with a gap of {} ms", w.gap_ms()),
    SessionOperator,
    "```
use cutwater_engine::graph::Timed;
use cutwater_engine::operator::testing::Rig;
use cutwater_engine::time::EventTime;
use cutwater_operators::prelude::*;

let mut rig = Rig::new();
let (clicks, stream) = rig.input::<String, Timed>(\"clicks\");
let visits = stream
    .key_value(|user| (user, ()))
    .window(Sessions::seconds(10))
    .aggregate(\"visits\", || 0, |n, ()| *n += 1, |n, more| *n += more, |user, visit, n: u64| format!(\"{user} {visit}: {n}\"))
    .drop_late();
let visits = rig.collect(visits);
rig.push(&clicks, [0, 9_999, 25_000].map(|at| (EventTime(at), \"ada\".to_string())).to_vec());
rig.finish();
let visits: Vec<String> = visits.take_records().into_iter().map(|(_, visit)| visit).collect();
assert_eq!(visits, [\"ada [0 ms, 19999 ms): 2\", \"ada [25000 ms, 35000 ms): 1\"]);
```"
);

fn aggregated<K: Data + CanonicalKey, T: Data, R: 'static>(
    keyed: Keyed<K, T, Timed>,
    name: String,
    kind: String,
    make: impl FnOnce(bool, &OperatorSetup) -> Box<dyn Operator> + 'static,
) -> Aggregated<K, T, R> {
    let build = Box::new(move |with_late: bool| {
        let outputs = if with_late { 2 } else { 1 };
        keyed.operator(name, &kind, outputs, move |setup: &OperatorSetup| Ok(make(with_late, setup)))
    });
    Aggregated { build, result: PhantomData }
}

/// The results of windows; what happens to late records is still to be said.
#[must_use = "say what happens to late records: `.with_late()` gives them as a second stream, `.drop_late()` counts and drops them"]
pub struct Aggregated<K: 'static, T: 'static, R: 'static> {
    build: Box<dyn FnOnce(bool) -> Outputs>,
    result: PhantomData<fn(K, T) -> R>,
}

impl<K: 'static, T: 'static, R: 'static> fmt::Debug for Aggregated<K, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aggregated<{}>", std::any::type_name::<R>())
    }
}

impl<K: Send + 'static, T: Send + 'static, R: Send + 'static> Aggregated<K, T, R> {
    /// The results, and the records that came too late for their window, as they were.
    pub fn with_late(self) -> (Stream<R, Timed>, Stream<T, Timed>) {
        let (results, late) = self.with_late_keyed();
        (
            results,
            late.stage::<T, Timed>("late", |batch, _| batch.into_iter().map(|(t, (_, record))| (t, record)).collect()),
        )
    }

    /// As [`Aggregated::with_late`], with the key beside each late record, for streams whose records don't hold their key
    /// ([`key_value`](crate::key_by::KeyBy::key_value)).
    pub fn with_late_keyed(self) -> (Stream<R, Timed>, Stream<(K, T), Timed>) {
        let outputs = (self.build)(true);
        (outputs.stream::<R, Timed>(0), outputs.stream::<(K, T), Timed>(1))
    }

    /// The results alone. Late records are counted, and dropped.
    pub fn drop_late(self) -> Stream<R, Timed> {
        (self.build)(false).stream::<R, Timed>(0)
    }
}
