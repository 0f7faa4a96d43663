//! `key_by`, `key_value`: divide a stream by a key.
//!
//! * Emits: nothing yet; the records cross to the worker that owns their key's group when an operator is put on the
//!   [`Keyed`] stream. Equal keys meet there, in the order of each sender.
//! * State: none; it is a stage before the exchange.
//! * At a barrier: nothing to do.
//!
//! Here records must be able to cross between workers for the first time, so here `Data` is asked for.

use cutwater_engine::element::Data;
use cutwater_engine::exchange::CanonicalKey;
use cutwater_engine::graph::{Keyed, Stream, TimeMode};

/// Adds `key_by` and `key_value` to streams.
pub trait KeyBy<T: 'static, M: TimeMode> {
    /// Divides the stream by `key` of each record. The record stays whole, so what is in the key exists twice; where that is
    /// too much, use [`KeyBy::key_value`].
    ///
    /// ```
    /// use cutwater_engine::graph::Untimed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (words, stream) = rig.input::<String, Untimed>("words");
    /// let out = rig.collect(stream.key_by(|word| word.len() as u64).count("lengths"));
    /// rig.push(&words, vec!["a".into(), "b".into(), "cd".into()]);
    /// assert_eq!(out.take_records(), [(1, 1), (1, 2), (2, 1)]);
    /// ```
    fn key_by<K>(self, key: impl Fn(&T) -> K + 'static) -> Keyed<K, T, M>
    where
        K: Data + CanonicalKey,
        T: Data,
        M::Of<T>: Data;

    /// Divides the stream by the key that `split` takes out of each record, and goes on with the rest of it.
    ///
    /// ```
    /// use cutwater_engine::graph::Untimed;
    /// use cutwater_engine::operator::testing::Rig;
    /// use cutwater_operators::prelude::*;
    ///
    /// let mut rig = Rig::new();
    /// let (words, stream) = rig.input::<String, Untimed>("words");
    /// let out = rig.collect(stream.key_value(|word| (word, ())).count("words"));
    /// rig.push(&words, vec!["a".into(), "a".into()]);
    /// assert_eq!(out.take_records(), [("a".to_string(), 1), ("a".to_string(), 2)]);
    /// ```
    fn key_value<K, V>(self, split: impl Fn(T) -> (K, V) + 'static) -> Keyed<K, V, M>
    where
        K: Data + CanonicalKey,
        V: Data,
        M::Of<V>: Data;
}

impl<T: 'static, M: TimeMode> KeyBy<T, M> for Stream<T, M> {
    fn key_by<K>(self, key: impl Fn(&T) -> K + 'static) -> Keyed<K, T, M>
    where
        K: Data + CanonicalKey,
        T: Data,
        M::Of<T>: Data,
    {
        self.keyed(move |record| (key(&record), record))
    }

    fn key_value<K, V>(self, split: impl Fn(T) -> (K, V) + 'static) -> Keyed<K, V, M>
    where
        K: Data + CanonicalKey,
        V: Data,
        M::Of<V>: Data,
    {
        self.keyed(split)
    }
}

#[cfg(test)]
mod tests {
    use cutwater_engine::graph::Untimed;
    use cutwater_engine::operator::testing::Rig;

    use super::*;
    use crate::count::Count;

    #[test]
    fn each_key_is_seen_by_exactly_one_of_three_workers() {
        let mut seen = vec![];
        for worker in 0..3 {
            let mut rig = Rig::on_worker(worker, 3);
            let (numbers, stream) = rig.input::<u64, Untimed>("numbers");
            let out = rig.collect(stream.key_by(|n| n % 50).count("by-rest"));
            rig.push(&numbers, (0..100).collect());
            let records = out.take_records();
            assert!(!records.is_empty(), "50 keys leave none of three workers empty");
            seen.extend(records);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..50).flat_map(|key| [(key, 1), (key, 2)]).collect::<Vec<(u64, u64)>>());
    }
}
