//! Certificates and keys out of PEM files, and why a file is of no use. What is read stays in rustls' own types.

use std::path::{Path, PathBuf};

use cutwater_platform::{Files, IoContext, IoError};
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

/// No file of certificates or keys is larger.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file has no certificate or key that can be used.
#[derive(Debug, Error)]
pub enum PemError {
    /// It can't be read.
    #[error(transparent)]
    Read(#[from] IoError),
    /// It isn't PEM, or has nothing of the kind in it.
    #[error(
        "{} has no {wanted} in it that can be read ({why}): it must be a PEM file with a line \"-----BEGIN {line}-----\"",
        path.display()
    )]
    Nothing {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        wanted: &'static str,
        /// How such a thing begins in a PEM file.
        line: &'static str,
        /// What was found instead.
        why: String,
    },
    /// Its certificates can't vouch for anybody.
    #[error("the certificates in {} can't vouch for anybody: {why}; give those of the authority that issues them", path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// The certificates of a file, at least one.
///
/// # Errors
/// It can't be read, or has none.
pub fn certificates(files: &dyn Files, path: &Path) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let text = files.read(path, FILE_BYTES_MAX).at("read certificates", path)?;
    let none = |error: &pem::Error| nothing(path, "certificate", "CERTIFICATE", error);
    let found = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>().map_err(|e| none(&e))?;
    if found.is_empty() { Err(none(&pem::Error::NoItemsFound)) } else { Ok(found) }
}

/// The private key of a file.
///
/// # Errors
/// It can't be read, or has none.
pub fn private_key(files: &dyn Files, path: &Path) -> Result<PrivateKeyDer<'static>, PemError> {
    let text = zeroize::Zeroizing::new(files.read(path, FILE_BYTES_MAX).at("read the private key", path)?);
    PrivateKeyDer::from_pem_slice(&text).map_err(|e| nothing(path, "private key", "PRIVATE KEY", &e))
}

/// The authorities whose certificates a file has.
///
/// # Errors
/// It can't be read, has none, or one that is none of an authority.
pub fn roots(files: &dyn Files, path: &Path) -> Result<RootCertStore, PemError> {
    let mut roots = RootCertStore::empty();
    for root in certificates(files, path)? {
        roots.add(root).map_err(|e| PemError::Roots { path: path.to_path_buf(), why: e.to_string() })?;
    }
    Ok(roots)
}

fn nothing(path: &Path, wanted: &'static str, line: &'static str, error: &pem::Error) -> PemError {
    let why = match error {
        pem::Error::NoItemsFound => "nothing of the kind was found".to_string(),
        other => other.to_string(),
    };
    PemError::Nothing { path: path.to_path_buf(), wanted, line, why }
}
