//! What happens between a crash and the first record after it: which attempt this is, from where it goes on, what must be
//! committed first, and who gets which state.

mod claim;
mod facts;
mod rescale;
mod resolve;
mod upgrade;
mod upgrade_report;

pub use claim::claim_next;
pub use facts::{Found, read_facts};
pub use rescale::{StatePiece, state_pieces};
pub use resolve::{BaseFact, Facts, ManifestContent, Refusal, Resolution, Resume, Want, next_checkpoint, resolve};
pub(crate) use upgrade::is_in_flight;
pub use upgrade::{Program, ProgramOperator, ProgramState, Upgrade, compare};
pub use upgrade_report::{Change, Part, Problem, UpgradeRow};
