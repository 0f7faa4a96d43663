//! Keyed state: where an operator keeps what it knows per key.
//!
//! ```text
//!   operator  --typed-->  handle: State, MapState  --over-->  table: flat, dirty bitmap, freeze
//!   shell     --erased->  erased: KeyedState, FrozenState     (freeze at a barrier, sweep, load)
//! ```
//!
//! State lives in memory, in one [`Table`] per named state and operator instance. At a barrier it is frozen in under a
//! microsecond; a paced sweep copies the frozen part out while records go on; another thread encodes and writes it
//! (`snapshot/`). Nothing here does I/O.

mod erased;
mod handle;
mod key;
mod schema;
mod table;

pub use erased::{FrozenState, KeyedState, Ownership, StateLoadError};
pub use handle::{MapState, State, StateTooLarge, StateValue};
pub use key::{Scoped, StateKey, scoped_hash};
pub use schema::{SCHEMA_RULES, schema_fingerprint};
pub use table::{Frozen, Table};
