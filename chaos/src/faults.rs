//! What strikes while everybody works, and when: a function of the seed.

use std::time::Duration;

use cutwater_platform::SplitMix;

use crate::Failed;
use crate::proxy::Proxy;
use crate::server::{Server, rest};

/// So large are the files of a broker that has no room any more: its write-ahead log is soon beyond.
const NO_ROOM: u64 = 1 << 16;

/// How often each struck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Struck {
    pub(crate) kills: u64,
    pub(crate) stops: u64,
    pub(crate) full_disks: u64,
}

/// The schedule.
#[derive(Debug)]
pub(crate) struct Faults {
    random: SplitMix,
    pub(crate) struck: Struck,
}

impl Faults {
    pub(crate) fn new(seed: u64) -> Faults {
        Faults { random: SplitMix::new(seed), struck: Struck::default() }
    }

    fn ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.random.next() % (to - from))
    }

    /// Waits a moment, then does one thing.
    pub(crate) fn strike(&mut self, server: &mut Server, proxy: &Proxy) -> Result<(), Failed> {
        let moment = self.ms(50, 600);
        rest(moment);
        match self.random.next() % 12 {
            0 | 1 => {
                server.kill();
                self.struck.kills += 1;
                let down = self.ms(0, 300);
                rest(down);
                server.again()?;
            }
            2 | 3 => {
                server.pause();
                self.struck.stops += 1;
                let still = self.ms(50, 1_500);
                rest(still);
                server.go_on();
            }
            // Stopped, and killed before it can go on.
            4 => {
                server.pause();
                let still = self.ms(10, 200);
                rest(still);
                server.kill();
                (self.struck.stops, self.struck.kills) = (self.struck.stops + 1, self.struck.kills + 1);
                server.again()?;
            }
            5 => {
                server.let_no_file_grow_beyond(NO_ROOM)?;
                self.struck.full_disks += 1;
                let full = self.ms(200, 800);
                rest(full);
                server.again()?;
            }
            6 | 7 => proxy.cut(),
            8 => proxy.half_close(),
            9 => {
                let late = self.ms(5, 40);
                proxy.delay(late);
            }
            // Late after a cut: what was sent arrives when it has been sent again.
            _ => {
                let late = self.ms(100, 400);
                proxy.delay(late);
                rest(late / 2);
                proxy.cut_clients();
                proxy.delay(Duration::ZERO);
            }
        }
        Ok(())
    }

    /// Nothing strikes any more, and everything works.
    pub(crate) fn calm(&mut self, server: &mut Server, proxy: &Proxy) -> Result<(), Failed> {
        proxy.delay(Duration::ZERO);
        server.go_on();
        self.struck.kills += 1;
        server.again()
    }
}
