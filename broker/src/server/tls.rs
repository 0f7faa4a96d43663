//! TLS for listeners: certificate and key from files, what is negotiated, and why a file is of no use.
//!
//! rustls on ring: TLS 1.2 and 1.3, no renegotiation, no session resumption (clients of a log connect seldom and stay, so each
//! connection proves itself anew). Private keys live in rustls alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutwater_platform::{Files, IoContext, IoError};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;

use crate::options::TlsFiles;

/// No certificate chain is longer.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why there is no TLS.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error(transparent)]
    Read(#[from] IoError),
    /// A file isn't PEM, or has nothing of the kind in it.
    #[error(
        "{} has no {wanted} in it that can be read ({why}): it must be a PEM file with a line \"-----BEGIN {line}-----\"",
        path.display()
    )]
    Pem {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        wanted: &'static str,
        /// How such a thing begins in a PEM file.
        line: &'static str,
        /// What was found instead.
        why: String,
    },
    /// Certificate and key don't belong together, or are of no kind that TLS can use.
    #[error(
        "the certificate in {} and the key in {} can't be used together: {why}; give the key that the certificate was made for, \
         and the server's own certificate before those of its issuers",
        certificate.display(), key.display()
    )]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What rustls says.
        why: String,
    },
    /// What shall vouch for clients can't.
    #[error("the certificates in {} can't vouch for clients: {why}; give those of the authority that issues them", path.display())]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// What rustls says.
        why: String,
    },
}

/// What all TLS connections of a server begin with.
pub(super) fn load(files: &dyn Files, from: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(files, &from.certificate)?;
    let text = files.read(&from.key, FILE_BYTES_MAX).at("read the private key", &from.key)?;
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|e| TlsError::Pem {
        path: from.key.clone(),
        wanted: "private key",
        line: "PRIVATE KEY",
        why: of_pem(&e),
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let pair = |e: rustls::Error| TlsError::Pair {
        certificate: from.certificate.clone(),
        key: from.key.clone(),
        why: e.to_string(),
    };
    let config =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().map_err(pair)?;
    let config = match &from.client_ca {
        None => config.with_no_client_auth(),
        Some(path) => {
            let wrong = |why: String| TlsError::ClientCa { path: path.clone(), why };
            let mut roots = RootCertStore::empty();
            for root in certificates(files, path)? {
                roots.add(root).map_err(|e| wrong(e.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            config.with_client_cert_verifier(verifier.map_err(|e| wrong(e.to_string()))?)
        }
    };
    let mut config = config.with_single_cert(chain, key).map_err(pair)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn certificates(files: &dyn Files, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = files.read(path, FILE_BYTES_MAX).at("read certificates", path)?;
    let none =
        |why: String| TlsError::Pem { path: path.to_path_buf(), wanted: "certificate", line: "CERTIFICATE", why };
    let found = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>().map_err(|e| none(of_pem(&e)))?;
    if found.is_empty() { Err(none(of_pem(&pem::Error::NoItemsFound))) } else { Ok(found) }
}

fn of_pem(error: &pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => "nothing of the kind was found".to_string(),
        other => other.to_string(),
    }
}
