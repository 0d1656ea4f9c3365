//! The BMC's certificate: self-signed, made once, kept, as a real BMC keeps its own.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::server::config::Config;

pub fn acceptor(config: &Config) -> Result<TlsAcceptor> {
    let (certificate, key) = (config.state("bmc-certificate.pem"), config.state("bmc-key.pem"));
    if !(certificate.exists() && key.exists()) {
        let names = vec![config.bmc.listen.ip().to_string(), config.name.clone(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).context("make the BMC's certificate")?;
        write(&key, &made.signing_key.serialize_pem())?;
        write(&certificate, &made.cert.pem())?;
    }
    let chain = CertificateDer::from_pem_file(&certificate)
        .with_context(|| format!("read the BMC's certificate {}", certificate.display()))?;
    let key = PrivateKeyDer::from_pem_file(&key).with_context(|| format!("read the BMC's key {}", key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("choose TLS versions")?
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .context("use the BMC's certificate")?;
    Ok(TlsAcceptor::from(Arc::new(tls)))
}

fn write(path: &Path, text: &str) -> Result<()> {
    crate::whole::write(path, text).with_context(|| format!("write {}", path.display()))
}
