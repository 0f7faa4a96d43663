//! What the broker counts and measures, and the endpoint that Prometheus reads it from (`docs/broker.md`, decision 0058).
//!
//! [`counters`] is what requests touch: relaxed additions, no lock. Everything else is looked up when somebody asks:
//! [`report`] walks over log and groups and writes the page in Prometheus' text format ([`exposition`]), [`lag`] says how far
//! groups are behind, [`http`] is the endpoint.
//!
//! Promises:
//! * Nothing is counted per record, and no request waits for a reader of these figures.
//! * The number of series is bounded ([`MetricsOptions::series_max`]); what is left out is counted.
//! * The endpoint holds one connection at a time, reads a few kilobytes of it, and gives it up after seconds.

pub(crate) mod counters;
mod exposition;
mod http;
mod lag;
mod report;

pub use http::{MetricsOptions, MetricsServer};
