//! The write-ahead log: the log's commit point.
//!
//! Reading order: [`frame`] (bytes), [`ring`] (the files, reused in turn), [`writer`] (one synced write per group),
//! [`replay`] (what recovery finds, and what it takes for a torn tail or for damage).

pub(crate) mod frame;
pub(crate) mod replay;
pub(crate) mod ring;
pub(crate) mod writer;

#[cfg(test)]
mod tests;
