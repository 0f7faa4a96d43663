//! Windows: one final result per key and stretch of event time.
//!
//! * Emits: for each key and window with at least one record in time, one result, when the watermark reaches the window's
//!   end; its time is the window's last millisecond. Results are final. They come in the order of the windows' ends and,
//!   within a window, of the keys' canonical encodings, so that every run gives the same sequence per key.
//! * Late: a record whose window has fired. With [`Aggregated::with_late`] it comes out of a second stream; with
//!   [`Aggregated::drop_late`] it is counted and dropped. There is no lateness setting: the bound of the timestamps is the
//!   tolerance.
//! * State: one aggregate per key and open window, in the state `windows`, in the key group of the key alone. Timers are not
//!   stored: the open windows are the timers. For that their keys are in memory a second time, outside of the state's limit.
//! * At a barrier: the aggregates that changed are written, and up to where windows have fired, per key group: after a
//!   rescale no window fires twice, and late stays late. A firing of a million windows is emitted as there is room, and a
//!   barrier waits for the last of them.
//! * Counts: records in time as *absorbed*, the others as *late*.
//!
//! Reading order: [`tumbling`] (which window is it), `floors.rs` (what has fired), [`operator`].

mod operator;
pub mod tumbling;

use std::fmt;
use std::marker::PhantomData;

use cutwater_engine::element::Data;
use cutwater_engine::exchange::CanonicalKey;
use cutwater_engine::graph::{Keyed, OperatorSetup, Outputs, Stream, TimeMode, Timed};
use cutwater_engine::operator::Operator;
use cutwater_engine::state::{StateKey, StateValue};

use self::operator::{Functions, WindowOperator};
pub use self::tumbling::{Tumbling, Window};

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
    fn window(self, windows: Tumbling) -> Windowed<<Self as Windowable>::Key, <Self as Windowable>::Record>
    where
        Self: Windowable;
}

// On every stream, so that the compiler can say what is missing instead of that there is no such method.
impl<T: 'static, M: TimeMode> Windows for Stream<T, M> {
    fn window(self, windows: Tumbling) -> Windowed<<Self as Windowable>::Key, <Self as Windowable>::Record>
    where
        Self: Windowable,
    {
        Windowed { keyed: self.into_keyed(), windows }
    }
}

impl<K: 'static, T: 'static, M: TimeMode> Windows for Keyed<K, T, M> {
    fn window(self, windows: Tumbling) -> Windowed<<Self as Windowable>::Key, <Self as Windowable>::Record>
    where
        Self: Windowable,
    {
        Windowed { keyed: self.into_keyed(), windows }
    }
}

/// A keyed stream divided into windows, waiting to be told what to make of each.
#[must_use = "say what to make of each window with `.aggregate(..)`"]
pub struct Windowed<K: 'static, T: 'static> {
    keyed: Keyed<K, T, Timed>,
    windows: Tumbling,
}

impl<K: 'static, T: 'static> fmt::Debug for Windowed<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Windowed({:?}, {:?})", self.keyed, self.windows)
    }
}

impl<K, T> Windowed<K, T>
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
        let keyed = self.keyed;
        let build = Box::new(move |with_late: bool| {
            let outputs = if with_late { 2 } else { 1 };
            let functions = Functions { init, add, finish, types: PhantomData };
            keyed.operator(name, &kind, outputs, move |setup: &OperatorSetup| {
                Ok(Box::new(WindowOperator::new(windows, functions, with_late, setup)) as Box<dyn Operator>)
            })
        });
        Aggregated { build, result: PhantomData }
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
