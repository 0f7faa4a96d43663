//! The write-ahead log: the log's commit point.
//!
//! Reading order: [`frame`] (bytes), [`ring`] (the files, reused in turn), [`group`] (one synced write per group),
//! [`writer`] (who does it), [`replay`] (what recovery finds, and what it takes for a torn tail or for damage).

pub(crate) mod frame;
pub(crate) mod group;
pub(crate) mod replay;
pub(crate) mod ring;
pub(crate) mod writer;

#[cfg(test)]
mod tests;
