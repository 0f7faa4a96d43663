//! What would become of changes of topics, without making them: for requests that only ask.
//!
//! Promise: the answer is that of the real call at that moment, the log's limits included. Each change counts for those behind
//! it, so that two which fit alone and not together are answered as if they were made. Nothing is written, nothing reserved: between question
//! and call others may come first.
//!
//! It deliberately keeps no names: who asks for one name twice must notice.

use std::collections::BTreeMap;

use super::Log;
use crate::core::topics::Beside;
use crate::error::TopicError;
use crate::held::Needs;

/// Changes of topics that are judged and not made; see [`Log::rehearse`].
#[derive(Debug)]
pub struct Rehearsal<'a> {
    log: &'a Log,
    beside: Beside,
}

impl Log {
    /// Judges changes of topics one behind the other as if they were made.
    ///
    /// ```
    /// use cutwater_partition_log::{Log, LogLimits, LogOptions};
    /// # let dir = tempfile::tempdir()?;
    /// let limits = LogLimits { partitions_max: 10, ..LogLimits::default() };
    /// let options = LogOptions { limits, ..LogOptions::default() };
    /// let log = Log::open(&cutwater_platform::Platform::real(), dir.path(), options)?;
    /// let mut rehearsal = log.rehearse();
    /// let settings = Default::default();
    /// assert!(rehearsal.create_topic("flights", 6, &settings).is_ok());
    /// assert!(rehearsal.create_topic("delays", 6, &settings).is_err(), "with the flights there would be 12");
    /// assert!(log.topics().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rehearse(&self) -> Rehearsal<'_> {
        Rehearsal { log: self, beside: Beside::default() }
    }
}

impl Rehearsal<'_> {
    /// What [`Log::create_topic_with`] would answer now.
    ///
    /// # Errors
    /// As [`Log::create_topic_with`].
    pub fn create_topic(
        &mut self,
        name: &str,
        partitions: u32,
        settings: &BTreeMap<String, String>,
    ) -> Result<(), TopicError> {
        let shared = &self.log.inner.shared;
        let core = shared.core_for(Needs::Growth)?;
        core.state.judge_topic_with(name, partitions, settings, &shared.limits, self.beside)?;
        self.beside.topics += 1;
        self.beside.partitions += partitions as usize;
        Ok(())
    }

    /// What [`Log::grow_topic`] would answer now.
    ///
    /// # Errors
    /// As [`Log::grow_topic`].
    pub fn grow_topic(&mut self, name: &str, partitions: u32) -> Result<(), TopicError> {
        let shared = &self.log.inner.shared;
        let core = shared.core_for(Needs::Growth)?;
        let (_, more) = core.state.judge_growth(name, partitions, &shared.limits, self.beside)?;
        self.beside.partitions += more as usize;
        Ok(())
    }
}
