//! What a power cut does to operations that were never made durable: a pure choice of fates, from a policy and a seed.
//!
//! `fates` sees the pending operations of the whole disk in the order in which they were issued and answers one
//! `Fate` for each; `restart.rs` carries them out. Nothing here touches bytes.

use cutwater_platform::SplitMix;

/// What is left of pending operations after the power went off.
///
/// Whatever was made durable is there under every policy. Sectors of 512 bytes are atomic, and a sector that was written
/// twice holds one of its versions, never a mixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LossPolicy {
    /// Everything pending is gone.
    AllLost,
    /// Everything pending has reached the disk: the process died, or was lucky.
    NoneLost,
    /// Each operation on its own: gone, there, or any subset of its sectors; sizes may outlive their bytes.
    Random,
    /// Operations up to a random moment are there, later ones are gone.
    Prefix,
    /// Everything is there, but of the last write only its first sectors of 512 bytes (fewer than all).
    LastTorn512,
    /// Everything is there, but of the last write only its first pages of 4096 bytes (fewer than all).
    LastTorn4K,
    /// Operations before a random moment are gone, the later ones are there.
    Reordered,
    /// Names and sizes are there, the bytes are not: where a file grew it holds zeros.
    GrownZeros,
    /// Names and sizes are there, the bytes are not: where a write made a file grow it holds garbage.
    GrownGarbage,
    /// All bytes are there, but every name that wasn't synced is as before.
    NamesLost,
}

impl LossPolicy {
    /// Every policy, for matrices.
    pub const ALL: [LossPolicy; 10] = [
        LossPolicy::AllLost,
        LossPolicy::NoneLost,
        LossPolicy::Random,
        LossPolicy::Prefix,
        LossPolicy::LastTorn512,
        LossPolicy::LastTorn4K,
        LossPolicy::Reordered,
        LossPolicy::GrownZeros,
        LossPolicy::GrownGarbage,
        LossPolicy::NamesLost,
    ];
}

/// What a fate is chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// Bytes written to `offset..offset + len`.
    Write { offset: u64, len: u64 },
    /// A change of a file's size.
    Size,
    /// A change of names.
    Name,
    /// A synced write that stands behind pending ones only for order's sake: it can't be lost.
    Durable,
}

/// What becomes of one pending operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Lost,
    Whole,
    /// The units for which [`Tear::keeps`] says so.
    Torn(Tear),
    /// Only the size; the bytes are zeros or garbage.
    SizeOnly {
        garbage: bool,
    },
}

/// Which units of a write are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tear {
    /// The first `kept` units of `unit` bytes.
    First { unit: u64, kept: u64 },
    /// Any subset of the sectors, drawn from the seed; the size may be there without them.
    Subset { seed: u64, size_kept: bool },
}

/// The unit that a disk writes whole.
pub(crate) const SECTOR: u64 = 512;

impl Tear {
    /// Whether the sector that begins at `sector * 512` in the file is there, of a write that began at `offset`.
    pub(crate) fn keeps(self, offset: u64, sector: u64) -> bool {
        match self {
            Tear::First { unit, kept } => sector * SECTOR / unit - offset / unit < kept,
            Tear::Subset { seed, .. } => {
                SplitMix::new(seed ^ sector.wrapping_mul(0x9E37_79B9_7F4A_7C15)).next() & 1 == 1
            }
        }
    }
}

/// One fate for each pending operation. `ordered_names` says that names are journaled: a later change of names implies
/// the earlier ones.
pub(crate) fn fates(policy: LossPolicy, pending: &[Pending], ordered_names: bool, random: &mut SplitMix) -> Vec<Fate> {
    let count = pending.len() as u64;
    let last_write = pending.iter().rposition(|p| matches!(p, Pending::Write { .. }));
    let moment = match policy {
        LossPolicy::Prefix => random.below(count + 1),
        LossPolicy::Reordered => 1 + random.below(count.max(1)),
        _ => 0,
    };
    let mut fates = Vec::with_capacity(pending.len());
    for (index, &op) in pending.iter().enumerate() {
        let keep = |there: bool| if there { Fate::Whole } else { Fate::Lost };
        fates.push(match (policy, op) {
            (_, Pending::Durable) | (LossPolicy::NoneLost, _) => Fate::Whole,
            (LossPolicy::AllLost, _) => Fate::Lost,
            (LossPolicy::Random, op) => random_fate(op, random),
            (LossPolicy::Prefix, _) => keep((index as u64) < moment),
            (LossPolicy::Reordered, _) => keep(index as u64 >= moment),
            (LossPolicy::LastTorn512, Pending::Write { offset, len }) if Some(index) == last_write => {
                torn_at(offset, len, SECTOR, random)
            }
            (LossPolicy::LastTorn4K, Pending::Write { offset, len }) if Some(index) == last_write => {
                torn_at(offset, len, 4096, random)
            }
            (LossPolicy::LastTorn512 | LossPolicy::LastTorn4K, _) => Fate::Whole,
            (LossPolicy::GrownZeros, Pending::Write { .. }) => Fate::SizeOnly { garbage: false },
            (LossPolicy::GrownGarbage, Pending::Write { .. }) => Fate::SizeOnly { garbage: true },
            (LossPolicy::GrownZeros | LossPolicy::GrownGarbage, _) => Fate::Whole,
            (LossPolicy::NamesLost, op) => keep(op != Pending::Name),
        });
    }
    if ordered_names {
        keep_names_in_order(pending, &mut fates);
    }
    fates
}

fn random_fate(op: Pending, random: &mut SplitMix) -> Fate {
    let draw = random.below(8);
    match op {
        Pending::Write { .. } => match draw {
            0..=2 => Fate::Lost,
            3 | 4 => Fate::Whole,
            5 => Fate::SizeOnly { garbage: random.below(2) == 0 },
            _ => Fate::Torn(Tear::Subset { seed: random.next(), size_kept: random.below(2) == 0 }),
        },
        _ if draw < 4 => Fate::Lost,
        _ => Fate::Whole,
    }
}

fn torn_at(offset: u64, len: u64, unit: u64, random: &mut SplitMix) -> Fate {
    let units = (offset + len).div_ceil(unit) - offset / unit;
    Fate::Torn(Tear::First { unit, kept: random.below(units.max(1)) })
}

/// A journal replays in order: behind the first lost change of names all later ones are lost too.
fn keep_names_in_order(pending: &[Pending], fates: &mut [Fate]) {
    let mut lost = false;
    for (op, fate) in pending.iter().zip(fates) {
        if *op == Pending::Name {
            lost |= *fate == Fate::Lost;
            if lost {
                *fate = Fate::Lost;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPS: [Pending; 4] = [Pending::Name, Pending::Write { offset: 0, len: 2048 }, Pending::Durable, Pending::Name];

    fn drawn(policy: LossPolicy, seed: u64, ordered: bool) -> Vec<Fate> {
        fates(policy, &OPS, ordered, &mut SplitMix::new(seed))
    }

    #[test]
    fn what_is_durable_is_kept_by_every_policy_and_seed() {
        for policy in LossPolicy::ALL {
            for seed in 0..200 {
                assert_eq!(drawn(policy, seed, false)[2], Fate::Whole, "{policy:?} {seed}");
            }
        }
    }

    #[test]
    fn a_prefix_keeps_the_earlier_and_reordering_keeps_the_later_operations() {
        for seed in 0..200 {
            let lost = |f: &Fate| *f == Fate::Lost;
            let prefix: Vec<Fate> = drawn(LossPolicy::Prefix, seed, false);
            assert!(!lost(&prefix[0]) || lost(&prefix[1]) && lost(&prefix[3]));
            let reordered = drawn(LossPolicy::Reordered, seed, false);
            assert_eq!(reordered[0], Fate::Lost, "the first is always lost");
            assert!(lost(&reordered[1]) || !lost(&reordered[3]));
        }
    }

    #[test]
    fn journaled_names_are_never_kept_behind_a_lost_one() {
        let (mut both, mut swapped) = (0, 0);
        for seed in 0..200 {
            let names = |fates: &[Fate]| (fates[0] == Fate::Whole, fates[3] == Fate::Whole);
            both += u32::from(names(&drawn(LossPolicy::Random, seed, true)) == (true, true));
            assert_ne!(names(&drawn(LossPolicy::Random, seed, true)), (false, true));
            swapped += u32::from(names(&drawn(LossPolicy::Random, seed, false)) == (false, true));
        }
        assert!(both > 20 && swapped > 20, "without a journal the order does get mixed up: {both} {swapped}");
    }

    #[test]
    fn a_torn_write_keeps_fewer_units_than_it_has() {
        for seed in 0..200 {
            let Fate::Torn(tear) = drawn(LossPolicy::LastTorn512, seed, false)[1] else { panic!("not torn") };
            let kept = (0..4).filter(|&s| tear.keeps(0, s)).count();
            assert!(kept < 4);
            assert!((0..kept as u64).all(|s| tear.keeps(0, s)), "the first ones");
            let Fate::Torn(tear) = drawn(LossPolicy::LastTorn4K, seed, false)[1] else { panic!("not torn") };
            assert!(!tear.keeps(0, 0), "one page: gone whole");
        }
    }
}
