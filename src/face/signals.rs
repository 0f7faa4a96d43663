//! Ctrl-C and SIGTERM: the first asks, the second ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use super::exit::Exit;

/// Listens until dropped.
#[derive(Debug)]
pub(super) struct Signals {
    came: Arc<AtomicBool>,
    registered: Vec<SigId>,
}

impl Signals {
    /// Begins to listen.
    pub(super) fn take() -> io::Result<Signals> {
        let mut signals = Signals { came: Arc::new(AtomicBool::new(false)), registered: vec![] };
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag down and puts it up, the second one finds it up.
            let code = i32::from(Exit::Interrupted as u8);
            signals.registered.push(flag::register_conditional_shutdown(signal, code, signals.came.clone())?);
            signals.registered.push(flag::register(signal, signals.came.clone())?);
        }
        Ok(signals)
    }

    /// True when one has come.
    pub(super) fn came(&self) -> bool {
        self.came.load(Ordering::SeqCst)
    }

    /// The same for another thread.
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        self.came.clone()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            low_level::unregister(id);
        }
    }
}
