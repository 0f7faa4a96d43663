//! The one import that a pipeline needs: every operator, and the words they are called with.

pub use cutwater_engine::state::{Since, Ttl};

pub use crate::count::Count;
pub use crate::count_at_end::CountAtEnd;
pub use crate::dedupe::Dedupe;
pub use crate::filter::Filter;
pub use crate::filter_map::FilterMap;
pub use crate::flat_map::FlatMap;
pub use crate::fork::Fork;
pub use crate::fused::Fuse;
pub use crate::inspect::Inspect;
pub use crate::key_by::KeyBy;
pub use crate::map::Map;
pub use crate::process::{
    Declare, ExpiringOf, KeyedProcess, ListOf, MapOf, Process, Processed, Scope, Side, SideOut, Timer, ValueOf,
};
pub use crate::reduce::Reduce;
pub use crate::timestamps::{Bounded, Timestamps};
pub use crate::try_map::{Rejected, TryMap};
pub use crate::union::Union;
pub use crate::window::{Sessions, Sliding, Tumbling, Window, Windows};
