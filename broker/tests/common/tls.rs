//! Certificates made for a test, and clients that speak TLS.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cutwater_broker::TlsFiles;
use cutwater_platform::{Files, OsFiles};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::Client;

pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// An authority, and the certificates it has made.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    dir: PathBuf,
}

/// Writes a file that isn't there yet.
pub fn write(path: &Path, text: &str) -> PathBuf {
    OsFiles::new().publish_bytes(path, text.as_bytes()).expect("written");
    path.to_path_buf()
}

/// Replaces a file as tools do that renew certificates.
#[allow(dead_code, reason = "one test takes it")]
pub fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    write(&new, text);
    OsFiles::new().rename(&new, path).expect("renamed");
}

impl Authority {
    pub fn new(dir: &Path) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "a test's authority");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Authority { issuer: Issuer::new(params, key), certificate, dir: dir.to_path_buf() }
    }

    /// Files of its own certificate.
    pub fn file(&self) -> PathBuf {
        write(&self.dir.join("ca.pem"), &self.certificate)
    }

    /// Certificate and key for a name, as PEM.
    pub fn issue(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_string(), "127.0.0.1".to_string()]).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.issuer).expect("signed").pem(), key.serialize_pem())
    }

    /// Files for a server.
    pub fn server(&self, client_ca: Option<PathBuf>) -> TlsFiles {
        let (certificate, key) = self.issue("localhost");
        TlsFiles {
            certificate: write(&self.dir.join("server.pem"), &certificate),
            key: write(&self.dir.join("server.key"), &key),
            client_ca,
        }
    }

    fn config(&self, certificate: Option<(String, String)>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("PEM")).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
        let config = config.with_root_certificates(roots);
        match certificate {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM")];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
                config.with_client_auth_cert(chain, key).expect("a pair")
            }
        }
    }

    /// A client that trusts this authority, and shows this certificate if it is asked for one.
    pub fn client(&self, address: SocketAddr, certificate: Option<(String, String)>) -> Client<TlsStream> {
        let tcp = TcpStream::connect(address).expect("the broker listens");
        tcp.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(Arc::new(self.config(certificate)), name).expect("a session");
        Client::over(StreamOwned::new(session, tcp))
    }
}
