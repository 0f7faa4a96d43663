//! `process`: a function of your own per key, with state, timers and second outputs. What the other operators don't say.
//!
//! * Emits: what the function emits, when it is called: for each record, and for each timer it has set. A call is not
//!   divided; between two calls the operator waits for room.
//! * Timers are per key and named by their time. An event-time timer fires when the watermark has reached its time, before the
//!   watermark goes on. One of processing time fires when the wall clock has; if that came while the job stood still, before
//!   the first record after the restore, in the order of their times. When the input has ended, those that still wait fire in
//!   the order of their times: nothing that waited is lost.
//! * State: what the function declares ([`Declare`]), and its timers, in `event-timers` and `wall-timers`. For their order
//!   timers are in memory a second time, outside of the state's limit.
//! * At a barrier: the entries that changed and the timers that are set are written, and up to where time had gone per key
//!   group.
//! * Counts: every record as *absorbed*.
//!
//! Reading order: [`KeyedProcess`], [`Scope`], [`Declare`]; `timers.rs`, `operator.rs`.

mod operator;
mod scope;
mod sides;
mod states;
mod timers;

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;

use cutwater_engine::element::Data;
use cutwater_engine::exchange::CanonicalKey;
use cutwater_engine::graph::{Keyed, OperatorSetup, Outputs, Stream, TimeMode};
use cutwater_engine::operator::Operator;
use cutwater_engine::state::StateKey;

use self::operator::ProcessOperator;
pub use self::scope::{Scope, Timer};
pub use self::sides::{Side, SideOut};
pub use self::states::{Declare, ExpiringOf, ListOf, MapOf, ValueOf};

/// The state of event-time timers.
const EVENT_TIMERS: &str = "event-timers";
/// The state of timers of processing time.
const WALL_TIMERS: &str = "wall-timers";

/// A function of a key's records and timers.
///
/// What it knows it keeps in the handles it has declared, never in fields: those are in no snapshot.
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't say what to do with records of `{T}` with the key `{K}`",
    label = "not a process function for this stream",
    note = "write `impl KeyedProcess<{K}, {T}, {M}> for ...`; `Timed` is for streams with event times, `Untimed` for others"
)]
pub trait KeyedProcess<K, T: 'static, M: TimeMode>: 'static {
    /// What it emits.
    type Out: Send + 'static;

    /// A record of the key at hand.
    fn on_record(&mut self, record: T, cx: &mut Scope<'_, K, Self::Out, M>);

    /// A timer of the key at hand, which is no longer set.
    fn on_timer(&mut self, _timer: Timer, _cx: &mut Scope<'_, K, Self::Out, M>) {}
}

/// Adds `process` to keyed streams.
pub trait Process<K: 'static, T: 'static, M: TimeMode> {
    /// Calls a function of your own for each record, and for each timer that it sets. `declare` says what state and which
    /// second outputs it has, and makes it.
    ///
    /// The name must be unique in the job: state and timers are found again by it.
    ///
    /// ```
    /// use cutwater_engine::graph::Timed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_engine::time::EventTime;
    /// use cutwater_operators::prelude::*;
    ///
    /// /// Says when a machine has been silent for ten seconds.
    /// struct Silence {
    ///     latest: ValueOf<String, EventTime>,
    /// }
    ///
    /// impl KeyedProcess<String, f64, Timed> for Silence {
    ///     type Out = String;
    ///
    ///     fn on_record(&mut self, _heat: f64, cx: &mut Scope<'_, String, String, Timed>) {
    ///         let latest = self.latest.get(cx).map_or(cx.time(), |latest| latest.max(cx.time()));
    ///         self.latest.set(cx, latest);
    ///         cx.set_timer(latest.saturating_add_ms(10_000));
    ///     }
    ///
    ///     fn on_timer(&mut self, timer: Timer, cx: &mut Scope<'_, String, String, Timed>) {
    ///         if self.latest.get(cx).is_some_and(|latest| timer == Timer::Event(latest.saturating_add_ms(10_000))) {
    ///             self.latest.take(cx);
    ///             cx.emit(format!("{} is silent", cx.key()));
    ///         }
    ///     }
    /// }
    ///
    /// let mut rig = Rig::new();
    /// let (heat, stream) = rig.input::<(String, f64), Timed>("heat");
    /// let silent = stream.key_value(|row| row).process("silence", |has| Silence { latest: has.value("latest") }).main();
    /// let silent = rig.collect(silent);
    /// rig.push(&heat, vec![(EventTime(0), ("drill".into(), 80.5)), (EventTime(9_000), ("drill".into(), 81.0))]);
    /// rig.watermark(&heat, EventTime(18_999));
    /// assert_eq!(silent.take_records(), []);
    /// rig.watermark(&heat, EventTime(19_000));
    /// assert_eq!(silent.take_records(), [(EventTime(19_000), "drill is silent".to_string())]);
    /// ```
    fn process<P: KeyedProcess<K, T, M>>(
        self,
        name: impl Into<String>,
        declare: impl FnOnce(&mut Declare<K, M>) -> P,
    ) -> Processed<P::Out, M>
    where
        K: Data + CanonicalKey + StateKey,
        M::Of<T>: Data,
        M::Of<P::Out>: Send;
}

impl<K: 'static, T: 'static, M: TimeMode> Process<K, T, M> for Keyed<K, T, M> {
    fn process<P: KeyedProcess<K, T, M>>(
        self,
        name: impl Into<String>,
        declare: impl FnOnce(&mut Declare<K, M>) -> P,
    ) -> Processed<P::Out, M>
    where
        K: Data + CanonicalKey + StateKey,
        M::Of<T>: Data,
        M::Of<P::Out>: Send,
    {
        let mut declared = Declare::new([EVENT_TIMERS, WALL_TIMERS]);
        let function = declare(&mut declared);
        let sides: Vec<_> = declared.sides.iter().map(|side| (side.name, side.record)).collect();
        let outputs = self.operator(name, "process", 1 + sides.len(), move |setup: &OperatorSetup| {
            Ok(Box::new(ProcessOperator::<K, T, M, P>::new(function, declared, setup)) as Box<dyn Operator>)
        });
        Processed { outputs, sides, types: PhantomData }
    }
}

/// What comes out of a process function.
#[must_use = "an output that leads nowhere is refused; take `.main()` and every `.side(..)`, or discard them"]
pub struct Processed<Out: 'static, M: TimeMode> {
    outputs: Outputs,
    /// Names and types of the side outputs, in the order of their ports.
    sides: Vec<(&'static str, TypeId)>,
    types: PhantomData<fn(M) -> Out>,
}

impl<Out: 'static, M: TimeMode> fmt::Debug for Processed<Out, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.sides.iter().map(|(name, _)| name).collect();
        write!(f, "Processed<{}>(side outputs {names:?})", std::any::type_name::<Out>())
    }
}

impl<Out: 'static, M: TimeMode> Processed<Out, M> {
    /// What the function emits. To be taken once.
    pub fn main(&self) -> Stream<Out, M>
    where
        M::Of<Out>: Send,
    {
        self.outputs.stream::<Out, M>(0)
    }

    /// What it emits on a side output. To be taken once.
    ///
    /// # Panics
    /// If the function hasn't declared it with this name and type.
    pub fn side<S: 'static>(&self, side: Side<S>) -> Stream<S, M>
    where
        M::Of<S>: Send,
    {
        let place = self.sides.iter().position(|other| *other == (side.name(), TypeId::of::<S>()));
        let place = place.unwrap_or_else(|| panic!("{side:?} wasn't declared with `.side(..)`; {self:?} has others"));
        self.outputs.stream::<S, M>(1 + place)
    }
}

#[cfg(test)]
mod tests;
