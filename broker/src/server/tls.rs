//! TLS for listeners: certificate and key from files, what is negotiated, and why a file is of no use.
//!
//! rustls on ring: TLS 1.2 and 1.3, no renegotiation, no session resumption (clients of a log connect seldom and stay, so each
//! connection proves itself anew). Private keys live in rustls alone.

use std::path::PathBuf;
use std::sync::Arc;

use cutwater_platform::Files;
use cutwater_secure::pem::{self, PemError};
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use thiserror::Error;

use crate::options::TlsFiles;

/// Why there is no TLS.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file is of no use.
    #[error(transparent)]
    File(#[from] PemError),
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
    let chain = pem::certificates(files, &from.certificate)?;
    let key = pem::private_key(files, &from.key)?;
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
            let roots = pem::roots(files, path)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            config.with_client_cert_verifier(verifier.map_err(|e| wrong(e.to_string()))?)
        }
    };
    let mut config = config.with_single_cert(chain, key).map_err(pair)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
