//! Security of a connection. Reads the CA, the client certificate, the token and the server name, and validates them before the client
//! connects.
//!
//! Files are read again while the process runs. The CA and the client certificate are read for each new connection. The token is read for a
//! call if the last read was more than a second ago. If a file becomes invalid, its last valid content remains in use, and the log names
//! its flag.

mod tls;
mod token;

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::pki_types::ServerName;

pub(crate) use self::{tls::Tls, token::Token};
use crate::target::{HostPort, Target};

/// The default name in an adapter's certificate.
pub const SERVER_NAME: &str = "cloud-adapter";

/// Security settings, as set by flags.
#[derive(Clone, Debug, Default)]
pub struct ChannelSecurity {
    /// PEM file with the CA of the adapter's certificate. During a rotation, the file contains several CAs.
    pub ca: Option<PathBuf>,
    /// The name that the adapter's certificate must contain. The default is the host of an `https` URL, or [`SERVER_NAME`] for other
    /// targets.
    pub server_name: Option<String>,
    /// File with the bearer token that authenticates the caller.
    pub token: Option<PathBuf>,
    /// PEM file with the certificate that authenticates the caller, and its intermediate certificates.
    pub client_certificate: Option<PathBuf>,
    /// PEM file with the key of the client certificate.
    pub client_key: Option<PathBuf>,
    /// The names of the flags, for errors.
    pub flags: Flags,
}

/// The flags that set a target and its security.
#[derive(Clone, Copy, Debug)]
pub struct Flags {
    /// Flag of the [`Target`].
    pub endpoint: &'static str,
    /// Flag of [`ChannelSecurity::ca`].
    pub ca: &'static str,
    /// Flag of `ChannelSecurity::server_name`.
    pub server_name: &'static str,
    /// Flag of [`ChannelSecurity::token`].
    pub token: &'static str,
    /// Flag of [`ChannelSecurity::client_certificate`].
    pub client_certificate: &'static str,
    /// Flag of [`ChannelSecurity::client_key`].
    pub client_key: &'static str,
}

impl Default for Flags {
    fn default() -> Self {
        Self {
            endpoint: "--adapter-endpoint",
            ca: "--adapter-ca-file",
            server_name: "--adapter-server-name",
            token: "--adapter-token-file",
            client_certificate: "--adapter-client-cert",
            client_key: "--adapter-client-key",
        }
    }
}

/// An invalid value of a flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{flag} {value}: {reason}")]
pub struct Fault {
    /// The flag.
    pub flag: &'static str,
    /// The value of the flag.
    pub value: String,
    /// What is wrong with the value, and the fix.
    pub reason: String,
}

impl Fault {
    fn new(flag: &'static str, value: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { flag, value: value.into(), reason: reason.into() }
    }

    fn of_file(flag: &'static str, path: &Path, reason: impl Into<String>) -> Self {
        Self::new(flag, path.display().to_string(), reason)
    }
}

/// Validated security settings, with all files read.
#[derive(Clone, Debug)]
pub(crate) struct Secured {
    /// The TLS settings of the connection, or `None` for plaintext.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) token: Option<Arc<Token>>,
}

impl ChannelSecurity {
    pub(crate) fn check(&self, target: &Target) -> Result<Secured, Vec<Fault>> {
        let mut faults = self.contradictions(target);
        let mut note = |fault| faults.push(fault);
        let tls = self.ca.as_ref().and_then(|ca| {
            let server_name = self.server_name(target).map_err(&mut note).ok()?;
            let files = tls::Files { ca: ca.clone(), client: self.client() };
            Tls::load(files, server_name, self.flags).map_err(&mut note).ok()
        });
        let token = self.token.as_ref().map(|path| Token::load(path, self.flags.token));
        let token = token.transpose().map_err(&mut note).ok().flatten();
        if faults.is_empty() {
            Ok(Secured { tls: tls.map(Arc::new), token: token.map(Arc::new) })
        } else {
            Err(faults)
        }
    }

    fn client(&self) -> Option<(PathBuf, PathBuf)> {
        self.client_certificate.clone().zip(self.client_key.clone())
    }

    /// Returns the settings that contradict each other. Opens no file.
    fn contradictions(&self, target: &Target) -> Vec<Fault> {
        let Flags { endpoint, ca, .. } = self.flags;
        let mut faults = Vec::new();
        match (target, &self.ca) {
            (Target::Single { tls: true, .. }, None) => {
                let fix = format!("TLS needs the CA of the adapter's certificate: set {ca} to its file");
                faults.push(Fault::new(endpoint, target.to_string(), fix));
            }
            (Target::Single { tls: false, host }, Some(path)) => {
                let fix = format!("TLS is not used with {endpoint} http://; use https://{host}");
                faults.push(Fault::of_file(ca, path, fix));
            }
            (Target::Unix(_), Some(path)) => {
                let fix = format!("TLS is not used with {endpoint} unix:; remove this flag");
                faults.push(Fault::of_file(ca, path, fix));
            }
            _ => (),
        }
        faults.extend(self.needs_tls(target));
        faults.extend(self.half_a_pair());
        faults
    }

    /// Returns the settings that are useless or unsafe in plaintext, if the connection uses no TLS.
    fn needs_tls(&self, target: &Target) -> Vec<Fault> {
        if self.ca.is_some() || matches!(target, Target::Single { tls: true, .. }) {
            return Vec::new();
        }
        let Flags { ca, server_name, token, client_certificate, .. } = self.flags;
        let mut faults = Vec::new();
        if let Some(name) = &self.server_name {
            let reason = format!("a server name is only checked with TLS: add {ca}, or remove this flag");
            faults.push(Fault::new(server_name, name, reason));
        }
        if let Some(path) = &self.client_certificate {
            let reason = format!("the certificate is only used with TLS: add {ca}, or remove this flag");
            faults.push(Fault::of_file(client_certificate, path, reason));
        }
        if let Some(path) = self.token.as_ref().filter(|_| leaves_machine(target)) {
            let reason = format!("without TLS, others could read the token on the network: add {ca}");
            faults.push(Fault::of_file(token, path, reason));
        }
        faults
    }

    fn half_a_pair(&self) -> Option<Fault> {
        let Flags { client_certificate, client_key, .. } = self.flags;
        match (&self.client_certificate, &self.client_key) {
            (Some(path), None) => {
                let fix = format!("a certificate needs its key: add {client_key}");
                Some(Fault::of_file(client_certificate, path, fix))
            }
            (None, Some(path)) => {
                let fix = format!("a key needs its certificate: add {client_certificate}");
                Some(Fault::of_file(client_key, path, fix))
            }
            (Some(_), Some(_)) | (None, None) => None,
        }
    }

    fn server_name(&self, target: &Target) -> Result<ServerName<'static>, Fault> {
        let (flag, name) = match (&self.server_name, target) {
            (Some(name), _) => (self.flags.server_name, name.as_str()),
            (None, Target::Single { host, .. }) => (self.flags.endpoint, host.host.as_str()),
            (None, _) => (self.flags.server_name, SERVER_NAME),
        };
        ServerName::try_from(name.to_owned()).map_err(|_invalid| {
            Fault::new(flag, name, "use a DNS name or an IP address, such as cloud-adapter")
        })
    }
}

/// Whether traffic to the target leaves this host, so that other hosts could read it.
fn leaves_machine(target: &Target) -> bool {
    let leaves = |host: &HostPort| {
        let loopback = host.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        !loopback && host.host != "localhost"
    };
    match target {
        Target::Unix(_) => false,
        Target::Single { host, .. } | Target::Dns(host) => leaves(host),
        Target::Static(hosts) => hosts.iter().any(leaves),
        #[cfg(feature = "kubernetes")]
        Target::Kubernetes(_) => true,
    }
}

#[cfg(test)]
mod tests;
