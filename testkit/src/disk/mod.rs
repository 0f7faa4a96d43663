//! A disk in memory that fails the way real ones do, as a twin of the operating system's files.
//!
//! ```text
//!   write, set_len ─> cache ──sync_data───────────────> durable bytes
//!                       │  └─ pending changes ─┐
//!   create, rename ─> names ──sync_dir─────────┼──────> durable names
//!                       └─── pending edits ────┤
//!                                              v
//!   crash()  then  restart(policy, seed):  durable + what the policy leaves of the pending ones
//! ```
//!
//! What [`Files`](cutwater_platform::Files) promises holds, and nothing beyond it: bytes are safe after `sync_data` or
//! `write_synced_at`, names after `sync_dir`. A crash may strike in any step ([`SimDisk::crash_at_step`]); a struck
//! operation never answers and is left pending, so the [`LossPolicy`] decides whether it happened, did not, or half did.
//! A failed sync is Linux's ([`SyncFault`]): an error once, then Ok over bytes that no disk has. Any other operation can fail as
//! well ([`OpFault`]).
//!
//! Reading order: [`policy`] (what is lost), `content` (bytes), `state` (cache, durable, pending), `restart` (fates carried
//! out), [`failing`](OpFault), `files` and `file` (the platform's traits).
//!
//! Not modelled: misdirected writes (plant one with [`SimDisk::corrupt`]), stalls, several hard links to one file,
//! permissions, time stamps.

mod content;
mod failing;
mod file;
mod files;
mod names;
pub mod policy;
#[cfg(test)]
mod property;
mod restart;
mod state;
#[cfg(test)]
mod tests;
pub mod trace;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cutwater_platform::BLOCK_BYTES;

pub use failing::OpFault;
pub use policy::LossPolicy;
use state::State;
pub use trace::{DiskOp, TraceEntry};

/// When the names in a directory become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePolicy {
    /// Only by a sync of that directory: all that POSIX lets one hope for. The default.
    SyncDir,
    /// By any `sync_data` or `sync_dir`, all earlier changes of names at once and in order, as a journaling file system (ext4) does it.
    Journaled,
}

/// What the page cache holds after a sync failed. Either way the pages count as clean: the next sync says Ok, and the
/// disk never gets those bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncFault {
    /// The new bytes stay readable until the power goes off (ext4, XFS).
    KeepCache,
    /// The cache goes back to what the disk has (Btrfs).
    RevertCache,
}

/// A simulated disk. Clones are the same disk.
///
/// ```
/// use cutwater_platform::{File, Files, Open};
/// use cutwater_testkit::{LossPolicy, SimDisk};
/// use std::path::Path;
///
/// let disk = SimDisk::new();
/// let file = disk.open(Path::new("journal"), Open::CreateNew)?;
/// file.write_all_at(b"safe", 0)?;
/// file.sync_data()?;
/// disk.sync_dir(Path::new("."))?;
/// file.write_all_at(b" and not", 4)?;
///
/// let next = disk.restart(LossPolicy::AllLost, 1);
/// assert!(file.sync_data().is_err(), "the old machine is off");
/// assert_eq!(next.read(Path::new("journal"), 100)?, b"safe");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl Default for SimDisk {
    fn default() -> Self {
        SimDisk::new()
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock_state();
        write!(f, "SimDisk({} files, step {}{})", state.files.len(), state.steps, if state.off { ", off" } else { "" })
    }
}

impl SimDisk {
    /// An empty, endless disk without faults.
    pub fn new() -> SimDisk {
        SimDisk::of(State::new())
    }

    fn of(state: State) -> SimDisk {
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        // A panic of ours while the lock is held fails its own test; others may still print the disk.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // Crashes.

    /// Turns the power off: every later operation, by this disk or a file or lock opened on it, fails.
    pub fn crash(&self) {
        self.lock_state().off = true;
    }

    /// True once the power went off.
    pub fn is_off(&self) -> bool {
        self.lock_state().off
    }

    /// Turns the power off within the `step`-th step of this life (1 is the first); `None` disarms. The struck
    /// operation gets no answer and stays pending: whether it happened is for the policy of the restart to say.
    pub fn crash_at_step(&self, step: impl Into<Option<u64>>) {
        self.lock_state().crash_at = step.into();
    }

    /// Steps so far in this life: operations that change something or make it durable. Reading is no step: on the
    /// disk, a crash before a read is a crash before the next step.
    pub fn steps(&self) -> u64 {
        self.lock_state().steps
    }

    /// Reads of files so far in this life: for tests that something is answered from memory.
    pub fn reads(&self) -> u64 {
        self.lock_state().reads
    }

    /// The steps of this life in order (the newest 20,000), for the story of a failure.
    pub fn trace(&self) -> Vec<TraceEntry> {
        self.lock_state().trace.list()
    }

    /// The trace as text, one step a line.
    pub fn trace_text(&self) -> String {
        self.trace().iter().map(|entry| format!("{entry}\n")).collect()
    }

    /// Turns the power off, if it isn't yet, and answers the machine that comes up again: with everything durable, and
    /// with what `policy` and `seed` leave of the pending operations. Everything found is durable then. May be asked
    /// again with other policies: the crashed disk stays as it was.
    ///
    /// Capacity, bad sectors, short reads and the name policy stay; armed crashes and faults of syncs and operations don't.
    pub fn restart(&self, policy: LossPolicy, seed: u64) -> SimDisk {
        let mut state = self.lock_state();
        state.off = true;
        SimDisk::of(restart::after_power_cut(&state, policy, seed))
    }

    /// Kills the process (`kill -9`) while the machine goes on: old handles are dead and locks free, the cache is still
    /// there, and what was pending is still pending. A process that serves what it reads here without syncing it first
    /// shows a phantom: the next power cut takes it away.
    pub fn kill(&self) -> SimDisk {
        let mut state = self.lock_state();
        state.off = true;
        SimDisk::of(restart::new_life(state.copy()))
    }

    /// An independent copy of the disk as it stands, cache and pending operations included, without handles and locks.
    /// Cheap: bytes are shared until written.
    pub fn fork(&self) -> SimDisk {
        SimDisk::of(restart::new_life(self.lock_state().copy()))
    }

    // Faults.

    /// Says when names become durable.
    pub fn set_name_policy(&self, names: NamePolicy) {
        self.lock_state().names = names;
    }

    /// Lets the `nth` sync from now fail with `EIO` (1 is the next). `sync_data`, `write_synced_at` and `sync_dir` count.
    /// Names that a failed `sync_dir` left behind stay visible, and no later sync writes them.
    ///
    /// # Panics
    /// If `nth` is 0.
    pub fn fail_sync(&self, nth: u64, fault: SyncFault) {
        assert!(nth > 0, "the first sync from now is number 1");
        self.lock_state().sync_fault = Some((nth, fault));
    }

    /// Lets the `nth` operation from now fail with `EIO` (1 is the next), whatever its kind; see [`OpFault`]. Steps and reads count:
    /// opening, locking, listing, and asking for a length or a kind among them. A restart disarms it.
    ///
    /// # Panics
    /// If `nth` is 0.
    pub fn fail_operation(&self, nth: u64, fault: OpFault) {
        assert!(nth > 0, "the first operation from now is number 1");
        self.lock_state().failing.arm(nth, fault);
    }

    /// Operations of any kind so far in this life: what [`SimDisk::fail_operation`] counts.
    pub fn operations(&self) -> u64 {
        self.lock_state().failing.asked()
    }

    /// True once an armed [`SimDisk::fail_operation`] has failed an operation of this life.
    pub fn has_failed(&self) -> bool {
        self.lock_state().failing.struck()
    }

    /// Limits the disk to so many bytes, in whole blocks of 4096; `None` takes the limit away. A write that needs more
    /// writes the blocks that fit and fails with `StorageFull`.
    pub fn set_capacity_bytes(&self, bytes: impl Into<Option<u64>>) {
        self.lock_state().capacity_blocks = bytes.into().map(|b| b / BLOCK_BYTES as u64);
    }

    /// Whether its size is limited.
    pub fn is_limited(&self) -> bool {
        self.lock_state().capacity_blocks.is_some()
    }

    /// Moves the error of a full disk from the write to the sync, as delayed allocation does. Such a sync loses its pages
    /// like a failed one.
    pub fn set_full_at_sync(&self, at_sync: bool) {
        self.lock_state().full_at_sync = at_sync;
    }

    /// Writes over what is there need room as well, as on a disk that copies on writing; they give it back at once.
    pub fn set_overwrites_need_room(&self, need: bool) {
        self.lock_state().overwrites_need_room = need;
    }

    /// Bytes in use, in whole blocks.
    pub fn used_bytes(&self) -> u64 {
        self.lock_state().used_blocks() * BLOCK_BYTES as u64
    }

    /// Every read of the byte at `offset` fails with `EIO`, over restarts too, until [`SimDisk::heal`].
    ///
    /// # Panics
    /// If there is no such file.
    pub fn fail_reads_at(&self, path: impl AsRef<Path>, offset: u64) {
        let (mut state, id) = self.file_named(path.as_ref());
        state.bad_bytes.entry(id).or_default().insert(offset);
    }

    /// Makes all bad bytes readable again.
    pub fn heal(&self) {
        self.lock_state().bad_bytes.clear();
    }

    /// Flips one bit, on the disk and in the cache.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn flip_bit(&self, path: impl AsRef<Path>, offset: u64, bit: u8) {
        let mut byte = [0];
        {
            let (state, id) = self.file_named(path.as_ref());
            assert_eq!(state.files[&id].cache.read(&mut byte, offset), 1, "no byte {offset} in {:?}", path.as_ref());
        }
        self.corrupt(path, offset, &[byte[0] ^ (1 << (bit % 8))]);
    }

    /// Overwrites bytes behind everybody's back, on the disk and in the cache: rot, a stale sector, a misdirected write.
    /// Parts that the disk or the cache doesn't have yet stay absent there.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn corrupt(&self, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) {
        let (mut state, id) = self.file_named(path.as_ref());
        let inode = state.file(id);
        for side in [&mut inode.cache, &mut inode.durable] {
            let there = usize::try_from(side.len().saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
            Arc::make_mut(side).write(&bytes[..there], offset);
        }
    }

    /// No read answers more than `bytes` at once; `None` takes the limit away.
    pub fn set_short_reads(&self, bytes: impl Into<Option<usize>>) {
        self.lock_state().read_limit = bytes.into().map(|n| n.max(1));
    }

    fn file_named(&self, path: &Path) -> (MutexGuard<'_, State>, u64) {
        let state = self.lock_state();
        let Ok(state::Node::File(id)) = state.find(path) else { panic!("there is no file {}", path.display()) };
        (state, id)
    }
}
