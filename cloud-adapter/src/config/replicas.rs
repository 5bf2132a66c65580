//! The flags for several replicas, and their validation at the start.

use std::path::{Path, PathBuf};

use adapter_client::{ChannelSecurity, Flags, SERVER_NAME, Target};
use anyhow::anyhow;
use clap::{Args, ValueEnum};
use cloud_lease::{Settings, Timing, causes};
use kube::{Client, Config, client::ClientBuilder};

use crate::{
    access_control::{AuthenticationKind, SecurityOptions},
    wrong_usage::WrongUsage,
};

const LEASE_NAME: &str = "cloud-adapter";

/// The flags for running several replicas.
#[derive(Args, Clone, Debug)]
pub struct ReplicaOptions {
    /// Number of replicas: a single one, or several of which only the leader calls the cloud. A single replica needs no Kubernetes
    #[arg(long, value_enum, default_value_t = ReplicaMode::Single, help_heading = "Replicas")]
    pub replicas: ReplicaMode,

    /// Address at which other replicas reach this replica
    #[arg(long, value_name = "HOST:PORT", help_heading = "Replicas")]
    pub advertise_address: Option<String>,

    /// Namespace of the leader's Lease [default: the namespace of the kubeconfig or the pod]
    #[arg(long, value_name = "NAMESPACE", help_heading = "Replicas")]
    pub lease_namespace: Option<String>,

    /// Name of the leader's Lease
    #[arg(long, value_name = "NAME", default_value = LEASE_NAME, help_heading = "Replicas")]
    pub lease_name: String,

    /// File with the bearer token by which a standby reads the watches of the leader
    #[arg(long, value_name = "FILE", help_heading = "Replicas")]
    pub peer_token_file: Option<PathBuf>,

    /// File with the certificate (PEM) by which a standby reads the watches of the leader, with --authentication client-certificate
    #[arg(long, value_name = "FILE", help_heading = "Replicas")]
    pub peer_client_cert: Option<PathBuf>,

    /// Key of the certificate in --peer-client-cert (PEM)
    #[arg(long, value_name = "FILE", help_heading = "Replicas")]
    pub peer_client_key: Option<PathBuf>,

    /// File with the CA certificates of the other replicas [default: --tls-ca-cert; without it, connections are plaintext]
    #[arg(long, value_name = "FILE", help_heading = "Replicas")]
    pub peer_ca_file: Option<PathBuf>,

    /// Server name in the certificates of the other replicas [default: the first of --tls-server-names, or cloud-adapter]
    #[arg(long, value_name = "NAME", help_heading = "Replicas")]
    pub peer_server_name: Option<String>,
}

/// The number of replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReplicaMode {
    /// A single replica, which always serves.
    #[default]
    Single,
    /// Several replicas. The replica that holds the Lease serves, and the other replicas are standbys.
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
    /// The identity includes the replica's address.
    ///
    /// Returns a missing or invalid flag as [`WrongUsage`].
    pub(crate) fn identity(&self, instance_id: &str) -> anyhow::Result<String> {
        let wrong = |text: String| anyhow::Error::from(WrongUsage(format!("--advertise-address{text}")));
        let Some(address) = &self.advertise_address else {
            let text = ": is missing: set the HOST:PORT at which other replicas reach this replica, \
            such as $(POD_IP):8443";
            return Err(wrong(text.to_owned()));
        };
        match format!("static:///{address}").parse() {
            Ok(Target::Static(hosts)) if hosts.len() == 1 => Ok(format!("{instance_id}@{address}")),
            Ok(_) => Err(wrong(format!(" {address}: expected one HOST:PORT"))),
            Err(error) => Err(wrong(format!(" {address}: {error}"))),
        }
    }

    /// Returns the security settings for connections to other replicas. All replicas must have the same flags.
    ///
    /// Returns [`WrongUsage`] if the replicas serve TLS but the CA is missing, or if they require credentials that are missing.
    pub(crate) fn security(&self, own: &SecurityOptions) -> Result<ChannelSecurity, WrongUsage> {
        let ca = self.peer_ca_file.clone().or_else(|| own.tls_ca_cert.clone());
        if ca.is_none() && own.tls_cert.is_some() {
            let text =
                "--peer-ca-file: is missing: set the CA of --tls-cert, by which replicas verify each other";
            return Err(WrongUsage(text.to_owned()));
        }
        self.proof(own.proof())?;
        let server_name = self.peer_server_name.as_ref().or(own.tls_server_names.first());
        let server_name = server_name.map_or(SERVER_NAME, String::as_str).to_owned();
        Ok(ChannelSecurity {
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

    /// Checks that this replica has the credentials that a leader requires of its callers. Without these credentials, a standby could never
    /// follow the leader.
    fn proof(&self, asked: AuthenticationKind) -> Result<(), WrongUsage> {
        let missing = match asked {
            AuthenticationKind::None => None,
            AuthenticationKind::ServiceAccount | AuthenticationKind::TokenReview => self
                .peer_token_file
                .is_none()
                .then_some("--peer-token-file: is missing: set the file with the token"),
            AuthenticationKind::ClientCertificate if self.peer_client_cert.is_none() => {
                Some("--peer-client-cert: is missing: set the file with the certificate")
            }
            AuthenticationKind::ClientCertificate => self
                .peer_client_key
                .is_none()
                .then_some("--peer-client-key: is missing: set the file with the key"),
        };
        missing.map_or(Ok(()), |text| {
            Err(WrongUsage(format!("{text}, because a standby needs it to follow the leader")))
        })
    }

    /// Returns the Lease and its client, which does not connect yet.
    ///
    /// Returns an unusable kubeconfig as [`WrongUsage`].
    pub(crate) async fn lease(
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
        let client = client.map_err(|error| anyhow!("cannot set up the API client: {}", causes(&error)))?;
        Ok((client.build(), settings))
    }
}

async fn kubernetes(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    let mut config = match kubeconfig.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => {
            crate::auth::configuration(path).await.map_err(|why| WrongUsage(format!("--kubeconfig {why}")))?
        }
        None => Config::incluster().map_err(|error| {
            WrongUsage(format!(
                "--replicas active-standby: no API server: {error}: set --kubeconfig outside of a pod"
            ))
        })?,
    };
    // The election uses its own timeouts and retries.
    config.default_retry = false;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standby_needs_the_credentials_that_the_leader_requires() {
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
    fn replicas_need_an_advertised_address() {
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
