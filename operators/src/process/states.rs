//! What a process function keeps: handles of state of the key at hand.
//!
//! A handle can be used with a [`Scope`] only, so that a function reaches the state of the key it was called for and of no
//! other: that may live on another worker.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use cutwater_engine::exchange::CanonicalKey;
use cutwater_engine::graph::{TimeMode, Timed};
use cutwater_engine::snapshot::StateName;
use cutwater_engine::state::{ExpiringState, KeyedState, ListState, MapState, State, StateKey, StateValue, Ttl};
use cutwater_engine::time::{EventTime, Watermark};

use super::scope::Scope;
use super::sides::{Side, SideBuffer, SideOut};

/// What a process function says it has, before the first record.
pub struct Declare<K, M> {
    pub(super) states: Vec<Rc<RefCell<dyn KeyedState>>>,
    pub(super) expiring: Vec<Rc<dyn Forget>>,
    pub(super) sides: Vec<SideBuffer<M>>,
    names: Vec<String>,
    key: std::marker::PhantomData<fn(K)>,
}

impl<K, M> fmt::Debug for Declare<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Declare({:?}, {} side outputs)", self.names, self.sides.len())
    }
}

impl<K: CanonicalKey + StateKey, M: TimeMode> Declare<K, M> {
    pub(super) fn new(reserved: [&str; 2]) -> Declare<K, M> {
        let names = reserved.map(String::from).to_vec();
        Declare { states: vec![], expiring: vec![], sides: vec![], names, key: std::marker::PhantomData }
    }

    /// A value per key.
    ///
    /// # Panics
    /// If the name can't be that of a state, or is taken; as for every state. Names are the function's own: another
    /// operator may have the same. A restore finds a state by its name, so names must stay.
    pub fn value<V: StateValue>(&mut self, name: &str) -> ValueOf<K, V> {
        ValueOf(self.declare(name, |name| State::new(name, 1)))
    }

    /// A value per key and map key, each an entry of its own in snapshots.
    ///
    /// # Panics
    /// As [`Declare::value`].
    pub fn map<MK: CanonicalKey + StateKey, MV: StateValue>(&mut self, name: &str) -> MapOf<K, MK, MV> {
        MapOf(self.declare(name, |name| MapState::new(name, 1)))
    }

    /// A list per key, each element an entry of its own in snapshots.
    ///
    /// # Panics
    /// As [`Declare::value`].
    pub fn list<T: StateValue>(&mut self, name: &str) -> ListOf<K, T> {
        ListOf(self.declare(name, |name| ListState::new(name, 1)))
    }

    /// A second stream out of the function; see [`Side`].
    ///
    /// # Panics
    /// If there is one of this name.
    pub fn side<S: Send + 'static>(&mut self, side: Side<S>) -> SideOut<S, M>
    where
        M::Of<S>: Send,
    {
        assert!(
            self.sides.iter().all(|other| other.name != side.name()),
            "there are two side outputs {:?}",
            side.name()
        );
        let (buffer, out) = SideBuffer::new(side);
        self.sides.push(buffer);
        out
    }

    fn declare<S: KeyedState + 'static>(&mut self, name: &str, make: impl FnOnce(StateName) -> S) -> Rc<RefCell<S>> {
        let state = StateName::new(name).unwrap_or_else(|e| panic!("{e}"));
        assert!(self.names.iter().all(|other| other != name), "there are two states {name:?} in one process function");
        self.names.push(name.to_string());
        let state = Rc::new(RefCell::new(make(state)));
        self.states.push(state.clone());
        state
    }
}

impl<K: CanonicalKey + StateKey> Declare<K, Timed> {
    /// A value per key that is forgotten by event time; see [`ExpiringState`].
    ///
    /// # Panics
    /// As [`Declare::value`].
    pub fn expiring<V: StateValue>(&mut self, name: &str, ttl: Ttl) -> ExpiringOf<K, V> {
        let state = self.declare(name, |name| ExpiringState::new(name, 1, ttl));
        self.expiring.push(state.clone());
        ExpiringOf(state)
    }

    /// As [`Declare::expiring`], for as long after it was last written.
    ///
    /// # Panics
    /// As [`Declare::value`].
    pub fn expiring_after<V: StateValue>(&mut self, name: &str, after: Duration) -> ExpiringOf<K, V> {
        self.expiring(name, Ttl::new(after).since(cutwater_engine::state::Since::LastWrite))
    }
}

/// State that forgets, its types forgotten.
pub(super) trait Forget {
    fn forget(&self, watermark: Watermark, budget: usize);
}

impl<K: StateKey, V: StateValue> Forget for RefCell<ExpiringState<K, V>> {
    fn forget(&self, watermark: Watermark, budget: usize) {
        self.borrow_mut().expire(watermark, budget);
    }
}

macro_rules! handle {
    ($name:ident<$($param:ident),+>) => {
        impl<$($param),+> fmt::Debug for $name<$($param),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

/// A value of the key at hand.
pub struct ValueOf<K, V>(Rc<RefCell<State<K, V>>>);
handle!(ValueOf<K, V>);

impl<K: CanonicalKey + StateKey, V: StateValue> ValueOf<K, V> {
    /// The value, if there is one.
    pub fn get<Out: 'static, M: TimeMode>(&self, cx: &Scope<'_, K, Out, M>) -> Option<V> {
        self.0.borrow().get(cx.key()).cloned()
    }

    /// Sets the value and returns the old one.
    pub fn set<Out: 'static, M: TimeMode>(&self, cx: &Scope<'_, K, Out, M>, value: V) -> Option<V> {
        self.0.borrow_mut().insert(cx.key().clone(), value)
    }

    /// Changes the value, which is made by `V::default` when there is none.
    pub fn update<R, Out: 'static, M: TimeMode>(&self, cx: &Scope<'_, K, Out, M>, change: impl FnOnce(&mut V) -> R) -> R
    where
        V: Default,
    {
        self.0.borrow_mut().update(cx.key(), change)
    }

    /// Removes the value and returns it.
    pub fn take<Out: 'static, M: TimeMode>(&self, cx: &Scope<'_, K, Out, M>) -> Option<V> {
        self.0.borrow_mut().remove(cx.key())
    }
}

/// A map of the key at hand.
pub struct MapOf<K, MK, MV>(Rc<RefCell<MapState<K, MK, MV>>>);
handle!(MapOf<K, MK, MV>);

impl<K, MK, MV> MapOf<K, MK, MV>
where
    K: CanonicalKey + StateKey,
    MK: CanonicalKey + StateKey,
    MV: StateValue,
{
    /// The value at `map_key`, if there is one.
    pub fn get<Out: 'static, M: TimeMode>(&self, cx: &Scope<'_, K, Out, M>, map_key: &MK) -> Option<MV> {
        self.0.borrow().get(cx.key(), map_key).cloned()
    }

    /// Sets the value at `map_key` and returns the old one.
    pub fn set<Out: 'static, M: TimeMode>(&self, cx: &Scope<'_, K, Out, M>, map_key: MK, value: MV) -> Option<MV> {
        self.0.borrow_mut().insert(cx.key().clone(), map_key, value)
    }

    /// Changes the value at `map_key`, which is made by `MV::default` when there is none.
    pub fn update<R, Out: 'static, M: TimeMode>(
        &self,
        cx: &Scope<'_, K, Out, M>,
        map_key: &MK,
        change: impl FnOnce(&mut MV) -> R,
    ) -> R
    where
        MV: Default,
    {
        self.0.borrow_mut().update(cx.key(), map_key, change)
    }

    /// Removes the value at `map_key` and returns it.
    pub fn take<Out: 'static, M: TimeMode>(&self, cx: &Scope<'_, K, Out, M>, map_key: &MK) -> Option<MV> {
        self.0.borrow_mut().remove(cx.key(), map_key)
    }
}

/// A list of the key at hand.
pub struct ListOf<K, T>(Rc<RefCell<ListState<K, T>>>);
handle!(ListOf<K, T>);

impl<K: CanonicalKey + StateKey, T: StateValue> ListOf<K, T> {
    /// How many elements there are.
    pub fn len<Out: 'static, M: TimeMode>(&self, cx: &Scope<'_, K, Out, M>) -> u64 {
        self.0.borrow().len_of(cx.key())
    }

    /// True when there are none.
    pub fn is_empty<Out: 'static, M: TimeMode>(&self, cx: &Scope<'_, K, Out, M>) -> bool {
        self.len(cx) == 0
    }

    /// Puts `value` at the end.
    pub fn push<Out: 'static, M: TimeMode>(&self, cx: &Scope<'_, K, Out, M>, value: T) {
        self.0.borrow_mut().push(cx.key(), value);
    }

    /// Folds the elements, from the first.
    pub fn fold<A, Out: 'static, M: TimeMode>(
        &self,
        cx: &Scope<'_, K, Out, M>,
        init: A,
        each: impl FnMut(A, &T) -> A,
    ) -> A {
        self.0.borrow().iter(cx.key()).fold(init, each)
    }

    /// Removes the elements and returns them.
    pub fn take<Out: 'static, M: TimeMode>(&self, cx: &Scope<'_, K, Out, M>) -> Vec<T> {
        self.0.borrow_mut().take(cx.key())
    }
}

/// A value of the key at hand that is forgotten by event time.
pub struct ExpiringOf<K, V>(Rc<RefCell<ExpiringState<K, V>>>);
handle!(ExpiringOf<K, V>);

impl<K: CanonicalKey + StateKey, V: StateValue> ExpiringOf<K, V> {
    /// The value, if there is one and its time isn't over.
    pub fn get<Out: 'static>(&self, cx: &Scope<'_, K, Out, Timed>) -> Option<V> {
        self.0.borrow_mut().get(cx.key(), at(cx)).cloned()
    }

    /// Sets the value and returns the old one, if its time wasn't over.
    pub fn set<Out: 'static>(&self, cx: &Scope<'_, K, Out, Timed>, value: V) -> Option<V> {
        self.0.borrow_mut().insert(cx.key(), at(cx), value)
    }

    /// Changes the value, which is made by `V::default` when there is none or its time is over.
    pub fn update<R, Out: 'static>(&self, cx: &Scope<'_, K, Out, Timed>, change: impl FnOnce(&mut V) -> R) -> R
    where
        V: Default,
    {
        change(self.0.borrow_mut().entry(cx.key(), at(cx), V::default))
    }

    /// Removes the value and returns it, if its time wasn't over.
    pub fn take<Out: 'static>(&self, cx: &Scope<'_, K, Out, Timed>) -> Option<V> {
        self.0.borrow_mut().remove(cx.key(), at(cx))
    }
}

/// What the watermark has passed is forgotten, whether or not it has been removed yet.
fn at<K: CanonicalKey + StateKey, Out: 'static>(cx: &Scope<'_, K, Out, Timed>) -> EventTime {
    cx.time().max(cx.watermark())
}
