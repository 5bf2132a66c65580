//! The flags of a replica, and what is checked of them before anything starts.

use std::path::{Path, PathBuf};

use adapter_client::{Flags, SERVER_NAME, Security, Target};
use anyhow::anyhow;
use clap::{Args, ValueEnum};
use cloud_lease::{Settings, Timing, causes};
use kube::{Client, Config, client::ClientBuilder};

use crate::{
    process::WrongUsage,
    security::{AuthenticationKind, SecurityOptions},
};

/// The name of the Lease unless somebody chose another.
const LEASE_NAME: &str = "cloud-adapter";

/// The flags that say whether this adapter is one of several.
#[derive(Args, Clone, Debug)]
pub struct ReplicaOptions {
    /// Whether this is the only replica, or one of several of which one talks to the cloud. The only one needs no Kubernetes.
    #[arg(long, value_enum, default_value_t = ReplicaMode::Single, help_heading = "Replicas")]
    pub replicas: ReplicaMode,

    /// Where other replicas reach this one.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Replicas")]
    pub advertise_address: Option<String>,

    /// Namespace of the Lease that the leading replica holds [default: that of the kubeconfig or the pod]
    #[arg(long, value_name = "NAMESPACE", help_heading = "Replicas")]
    pub lease_namespace: Option<String>,

    /// Name of that Lease.
    #[arg(long, value_name = "NAME", default_value = LEASE_NAME, help_heading = "Replicas")]
    pub lease_name: String,

    /// File with the bearer token by which this replica reads the watches of the leading one.
    #[arg(long, value_name = "FILE", help_heading = "Replicas")]
    pub peer_token_file: Option<PathBuf>,

    /// File with the certificate (PEM) by which this replica reads the watches of the leading one, with --authentication
    /// client-certificate.
    #[arg(long, value_name = "FILE", help_heading = "Replicas")]
    pub peer_client_cert: Option<PathBuf>,

    /// The key of that certificate (PEM).
    #[arg(long, value_name = "FILE", help_heading = "Replicas")]
    pub peer_client_key: Option<PathBuf>,

    /// File with the certificates that the other replicas' are signed by [default: that of --tls-ca-cert; without one they speak
    /// plain text]
    #[arg(long, value_name = "FILE", help_heading = "Replicas")]
    pub peer_ca_file: Option<PathBuf>,

    /// The name in the other replicas' certificates [default: the first of --tls-server-names, or cloud-adapter]
    #[arg(long, value_name = "NAME", help_heading = "Replicas")]
    pub peer_server_name: Option<String>,
}

/// Whether an adapter is the only one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReplicaMode {
    /// It is, and always serves.
    #[default]
    Single,
    /// It is one of several: the holder of a Lease serves, the others stand by.
    ActiveStandby,
}

impl Default for ReplicaOptions {
    fn default() -> Self {
        Self {
            replicas: ReplicaMode::Single,
            advertise_address: None,
            lease_namespace: None,
            lease_name: LEASE_NAME.to_owned(),
            peer_token_file: None,
            peer_client_cert: None,
            peer_client_key: None,
            peer_ca_file: None,
            peer_server_name: None,
        }
    }
}

impl ReplicaOptions {
    /// How other replicas are reached, and by which identity this one holds the Lease.
    ///
    /// # Errors
    /// A missing or wrong flag, as [`WrongUsage`].
    pub(super) fn identity(&self, instance_id: &str) -> anyhow::Result<String> {
        let wrong = |text: String| anyhow::Error::from(WrongUsage(format!("--advertise-address{text}")));
        let Some(address) = &self.advertise_address else {
            let text = ": is missing: set the HOST:PORT at which other replicas reach this one, such as $(POD_IP):8443";
            return Err(wrong(text.to_owned()));
        };
        match format!("static:///{address}").parse() {
            Ok(Target::Static(hosts)) if hosts.len() == 1 => Ok(format!("{instance_id}@{address}")),
            Ok(_) => Err(wrong(format!(" {address}: is not one HOST:PORT"))),
            Err(error) => Err(wrong(format!(" {address}: {error}"))),
        }
    }

    /// How a connection to another replica is made safe: all replicas have the same flags.
    ///
    /// # Errors
    /// Replicas that serve TLS and do not know by which CA, or that cannot prove to each other who they are, as [`WrongUsage`].
    pub(super) fn security(&self, own: &SecurityOptions) -> Result<Security, WrongUsage> {
        let ca = self.peer_ca_file.clone().or_else(|| own.tls_ca_cert.clone());
        if ca.is_none() && own.tls_cert.is_some() {
            let text =
                "--peer-ca-file: is missing: name the CA of --tls-cert, by which replicas know each other";
            return Err(WrongUsage(text.to_owned()));
        }
        self.proof(own.proof())?;
        let server_name = self.peer_server_name.as_ref().or(own.tls_server_names.first());
        let server_name = server_name.map_or(SERVER_NAME, String::as_str).to_owned();
        Ok(Security {
            server_name: ca.as_ref().map(|_| server_name),
            ca,
            token: self.peer_token_file.clone(),
            client_certificate: self.peer_client_cert.clone(),
            client_key: self.peer_client_key.clone(),
            flags: Flags {
                endpoint: "--advertise-address",
                ca: "--peer-ca-file",
                server_name: "--peer-server-name",
                token: "--peer-token-file",
                client_certificate: "--peer-client-cert",
                client_key: "--peer-client-key",
            },
        })
    }

    /// What the leader asks of its callers, it asks of a replica that follows it: one without it would never know anything.
    fn proof(&self, asked: AuthenticationKind) -> Result<(), WrongUsage> {
        let missing = match asked {
            AuthenticationKind::None => None,
            AuthenticationKind::ServiceAccount | AuthenticationKind::TokenReview => {
                self.peer_token_file.is_none().then_some("--peer-token-file: is missing: name the token")
            }
            AuthenticationKind::ClientCertificate if self.peer_client_cert.is_none() => {
                Some("--peer-client-cert: is missing: name the certificate")
            }
            AuthenticationKind::ClientCertificate => self
                .peer_client_key
                .is_none()
                .then_some("--peer-client-key: is missing: name the key of the certificate"),
        };
        missing.map_or(Ok(()), |text| {
            Err(WrongUsage(format!("{text} by which a replica that stands by follows the leading one")))
        })
    }

    /// The Lease, and the client to reach it with. Connects to nothing yet.
    ///
    /// # Errors
    /// A kubeconfig that cannot be used, as [`WrongUsage`].
    pub(super) async fn lease(
        &self,
        kubeconfig: Option<&Path>,
        identity: String,
    ) -> anyhow::Result<(Client, Settings)> {
        let config = kubernetes(kubeconfig).await?;
        let settings = Settings {
            namespace: self.lease_namespace.clone().unwrap_or_else(|| config.default_namespace.clone()),
            name: self.lease_name.clone(),
            identity,
            timing: Timing::default(),
        };
        let client = ClientBuilder::try_from(config);
        let client = client.map_err(|error| anyhow!("the API server cannot be asked: {}", causes(&error)))?;
        Ok((client.build(), settings))
    }
}

async fn kubernetes(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    let mut config = match kubeconfig.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => cloud_adapter_security::configuration(path)
            .await
            .map_err(|why| WrongUsage(format!("--kubeconfig {why}")))?,
        None => Config::incluster().map_err(|error| {
            WrongUsage(format!(
                "--replicas active-standby: no API server: {error}: give --kubeconfig outside of a pod"
            ))
        })?,
    };
    // The election limits and repeats its calls itself.
    config.default_retry = false;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_follows_needs_what_the_leader_asks_of_callers() {
        use AuthenticationKind::{ClientCertificate, None as Anyone, ServiceAccount, TokenReview};
        let file = || Some(PathBuf::from("file"));
        let missing = |replicas: &ReplicaOptions, asked| {
            let own = SecurityOptions { authentication: Some(asked), ..SecurityOptions::default() };
            let fault = replicas.security(&own).err().map(|fault| fault.to_string())?;
            Some(fault.split(':').next().unwrap_or_default().to_owned())
        };
        let nothing = ReplicaOptions::default();
        assert_eq!(missing(&nothing, Anyone), None);
        assert_eq!(missing(&nothing, ServiceAccount).as_deref(), Some("--peer-token-file"));
        assert_eq!(missing(&nothing, TokenReview).as_deref(), Some("--peer-token-file"));
        assert_eq!(missing(&nothing, ClientCertificate).as_deref(), Some("--peer-client-cert"));
        let token = ReplicaOptions { peer_token_file: file(), ..ReplicaOptions::default() };
        assert_eq!(missing(&token, ServiceAccount), None);
        let half = ReplicaOptions { peer_client_cert: file(), ..token };
        assert_eq!(missing(&half, ClientCertificate).as_deref(), Some("--peer-client-key"));
        let whole = ReplicaOptions { peer_client_key: file(), ..half };
        assert_eq!(missing(&whole, ClientCertificate), None);
        let with_tls =
            SecurityOptions { tls_ca_cert: file(), tls_ca_key: file(), ..SecurityOptions::default() };
        assert!(nothing.security(&with_tls).is_err(), "tokens are the default with TLS");
    }

    #[test]
    fn who_is_one_of_several_must_say_where_it_is_reached() {
        let at = |address: Option<&str>| ReplicaOptions {
            advertise_address: address.map(str::to_owned),
            ..ReplicaOptions::default()
        };
        assert_eq!(at(Some("10.0.0.1:8443")).identity("17f").expect("good"), "17f@10.0.0.1:8443");
        assert_eq!(at(Some("[fd00::1]:8443")).identity("17f").expect("good"), "17f@[fd00::1]:8443");
        for bad in [
            None,
            Some(""),
            Some("here"),
            Some("10.0.0.1"),
            Some("10.0.0.1:0"),
            Some("a:1/x"),
            Some("a:1,b:2"),
        ] {
            let error = at(bad).identity("17f").expect_err("bad");
            assert!(error.is::<WrongUsage>(), "{bad:?}");
            assert!(error.to_string().contains("--advertise-address"), "{error}");
        }
    }
}
