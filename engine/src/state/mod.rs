//! Keyed state: where an operator keeps what it knows per key.
//!
//! ```text
//!   operator  --typed-->  handle: State, MapState, ExpiringState, ListState  --over-->  table: flat, dirty bitmap, freeze
//!   shell     --erased->  erased: KeyedState   (freeze at a barrier, sweep into a FrozenState, load)
//! ```
//!
//! State lives in memory, in one [`Table`] per named state and operator instance. At a barrier it is frozen in a few
//! microseconds; a paced sweep encodes the frozen part while records go on; another thread writes it (`snapshot/`). Nothing
//! here does I/O.

mod block;
mod entries;
mod erased;
mod expiring;
mod frozen;
mod handle;
mod key;
mod list;
mod load;
mod migrate;
mod schema;
mod table;

pub(crate) use block::FrozenBlock;
pub use entries::{EntryReader, RawEntry};
pub use erased::{KeyedState, Ownership, StateLoadError};
pub use expiring::{ExpiringState, Kept, Since, Ttl};
pub use frozen::FrozenState;
pub(crate) use frozen::{Encoder, LARGE_BLOCKS};
pub use handle::{MapState, State, StateTooLarge, StateValue};
pub use key::{Scoped, StateKey, scoped_hash};
pub use list::{Element, ListState};
pub use migrate::{AnyMigrations, Migrations, OtherValues, SchemaVersion};
pub use schema::{SCHEMA_RULES, schema_fingerprint};
pub use table::{Copied, Table};
