//! The flags for TLS and for callers, validated into [`Settings`].

use std::{path::PathBuf, sync::Arc};

use clap::{Args, ValueEnum};
use telemetry::http::Readers;

use crate::auth::{Address, Identities, Identity, SecretName, ServerIdentity, TlsFiles};

const SERVER_NAME: &str = "cloud-adapter";

const AUDIENCE: &str = "cloud-adapter";

/// Flags for callers, their authentication, and the certificate of the port.
#[derive(Args, Clone, Debug, Default)]
pub struct SecurityOptions {
    /// UID of the namespace kube-system of the served cluster. Calls for other clusters are refused [default: read from the API server;
    /// with --authentication none, all clusters are served]
    #[arg(long, value_name = "UID", help_heading = "Callers")]
    pub cluster_id: Option<String>,

    /// CA certificate (PEM). With its key, the adapter issues its own certificates, valid for a day, and renews them
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub tls_ca_cert: Option<PathBuf>,

    /// Key of the CA in --tls-ca-cert (PEM)
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub tls_ca_key: Option<PathBuf>,

    /// Secret that keeps the CA, in its keys ca.crt and ca.key. The adapter creates the CA if the Secret has no data, and writes both to the
    /// files --tls-ca-cert and --tls-ca-key, which must be in memory. The Secret must exist; allow `get` and `patch` on this Secret only
    #[arg(long, value_name = "NAMESPACE/NAME", help_heading = "TLS", requires_all = ["tls_ca_cert", "tls_ca_key"])]
    pub tls_ca_secret: Option<SecretName>,

    /// DNS names or addresses in the certificates that the adapter issues for itself, as clients expect them [default: cloud-adapter]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "TLS")]
    pub tls_server_names: Vec<String>,

    /// Certificate of the server (PEM, the leaf first), renewed externally; read again when it changes
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub tls_cert: Option<PathBuf>,

    /// Key of the certificate in --tls-cert (PEM)
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub tls_key: Option<PathBuf>,

    /// Serve plaintext also on addresses other than loopback. Then others can read the traffic, and every client that reaches the port can
    /// make calls
    #[arg(long, help_heading = "TLS")]
    pub insecure: bool,

    /// Authentication of callers [default: none in plaintext, service-account with TLS]
    #[arg(long, value_enum, value_name = "HOW", help_heading = "Callers")]
    pub authentication: Option<AuthenticationKind>,

    /// Give a ServiceAccount a role; repeatable. Roles: node-controller, service-controller, route-controller, adapter (another replica),
    /// operator (dry runs and watches). ServiceAccounts without a role are refused
    #[arg(long, value_name = "ROLE=NAMESPACE/SERVICEACCOUNT", help_heading = "Callers")]
    pub identity: Vec<Identity>,

    /// Issuer of tokens [default: the issuer of the API server]
    #[arg(long, value_name = "URL", help_heading = "Callers")]
    pub token_issuer: Option<String>,

    /// Required audience of tokens. A token must have no other audience [default: cloud-adapter]
    #[arg(long, value_name = "AUDIENCE", help_heading = "Callers")]
    pub token_audience: Option<String>,

    /// File with the public keys of tokens, as a JSON Web Key Set [default: the keys of the API server]
    #[arg(long, value_name = "FILE", help_heading = "Callers")]
    pub token_jwks: Option<PathBuf>,

    /// CA certificates of callers (PEM), with --authentication client-certificate
    #[arg(long, value_name = "FILE", help_heading = "Callers")]
    pub client_ca: Option<PathBuf>,

    /// Trust domain of callers' certificates; the SPIFFE IDs are spiffe://DOMAIN/ns/NAMESPACE/sa/SERVICEACCOUNT
    #[arg(long, value_name = "DOMAIN", help_heading = "Callers")]
    pub trust_domain: Option<String>,

    /// Clients that may see the status page, / and /status.json of --http-address. All clients that reach the port can read metrics and
    /// probes
    #[arg(long, value_enum, value_name = "READERS", default_value = "local", help_heading = "Callers")]
    pub status_pages: Readers,

    /// Kubeconfig file for the API server, which provides keys or reviews tokens [default: the pod's ServiceAccount]
    #[arg(long, env = "KUBECONFIG", value_name = "FILE", help_heading = "Kubernetes")]
    pub kubeconfig: Option<PathBuf>,
}

/// How callers are authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuthenticationKind {
    /// No authentication: all clients that reach the port may do everything.
    None,
    /// Callers send a ServiceAccount token, which is verified offline with the cluster's public keys.
    ServiceAccount,
    /// Callers send a ServiceAccount token, which the API server verifies.
    TokenReview,
    /// Callers use a client certificate with a SPIFFE ID.
    ClientCertificate,
}

#[derive(Debug)]
pub(crate) struct Settings {
    /// The TLS files. `None`: plaintext.
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) callers: Callers,
    pub(crate) identities: Identities,
    pub(crate) served: Served,
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// The clusters whose calls are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// The cluster with this ID.
    Given(String),
    /// The cluster of the API server, whose ID is read at start.
    OfApiServer,
    /// All clusters.
    Any,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Callers {
    Anyone,
    Offline { audience: String, keys: TokenKeys },
    Review { audience: String },
    Certificate { trust_domain: Arc<str> },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TokenKeys {
    Mounted { path: PathBuf, issuer: String },
    Discovered { issuer: Option<String> },
}

impl SecurityOptions {
    /// Validates all flags together.
    ///
    /// Returns all faults, each with the flag and the fix.
    pub(crate) fn check(&self, address: &Address) -> Result<Settings, Vec<String>> {
        let mut faults = Vec::new();
        let tls = self.tls(&mut faults);
        let plain = tls.is_none() && faults.is_empty();
        if plain && !address.is_local() && !self.insecure {
            faults.push(format!(
                "--grpc-address {address}: plaintext is served only on loopback addresses and unix \
                sockets: set --tls-ca-cert and --tls-ca-key, or --tls-cert and --tls-key; or --insecure, \
                if all callers that reach the port may do everything"
            ));
        }
        if self.insecure && !plain {
            faults.push(
                "--insecure: applies to plaintext, but TLS flags are set: remove one of them".to_owned(),
            );
        }
        let kind = self.proof();
        let callers = self.callers(kind, plain, &mut faults);
        self.unused(kind, &mut faults);
        let identities = Identities::new(&self.identity).unwrap_or_else(|fault| {
            faults.push(format!("--identity: {fault}"));
            Identities::default()
        });
        let served = match &self.cluster_id {
            Some(id) => Served::Given(id.clone()),
            None if kind == AuthenticationKind::None => Served::Any,
            None => Served::OfApiServer,
        };
        match (callers, faults.is_empty()) {
            (Some(callers), true) => {
                // An empty variable is treated as unset.
                let kubeconfig = self.kubeconfig.clone().filter(|path| !path.as_os_str().is_empty());
                Ok(Settings { tls, callers, identities, served, kubeconfig })
            }
            _ => Err(faults),
        }
    }

    /// Returns how callers are authenticated: the value of the flag, or the default.
    pub(crate) fn proof(&self) -> AuthenticationKind {
        let plain = [&self.tls_ca_cert, &self.tls_ca_key, &self.tls_cert, &self.tls_key];
        self.authentication.unwrap_or(if plain.iter().all(|file| file.is_none()) {
            AuthenticationKind::None
        } else {
            AuthenticationKind::ServiceAccount
        })
    }

    fn tls(&self, faults: &mut Vec<String>) -> Option<TlsFiles> {
        let authority = pair("--tls-ca-cert", &self.tls_ca_cert, "--tls-ca-key", &self.tls_ca_key, faults);
        let mounted = pair("--tls-cert", &self.tls_cert, "--tls-key", &self.tls_key, faults);
        if authority.is_some() && mounted.is_some() {
            faults.push("--tls-cert: --tls-ca-cert is set, too: set only one pair".to_owned());
        }
        if authority.is_none() && !self.tls_server_names.is_empty() {
            faults.push(
                "--tls-server-names: applies to certificates that the adapter issues: set --tls-ca-cert"
                    .to_owned(),
            );
        }
        let names = match self.tls_server_names.as_slice() {
            [] => vec![SERVER_NAME.to_owned()],
            names => names.to_vec(),
        };
        let identity = match (authority, mounted) {
            (Some((certificate, key)), _) => ServerIdentity::Authority { certificate, key, names },
            (None, Some((certificate, key))) => ServerIdentity::Pair { certificate, key },
            (None, None) => return None,
        };
        Some(TlsFiles { identity, client_ca: self.client_ca.clone() })
    }

    fn callers(&self, kind: AuthenticationKind, plain: bool, faults: &mut Vec<String>) -> Option<Callers> {
        if kind != AuthenticationKind::None && self.identity.is_empty() {
            faults.push(
                "--identity: no ServiceAccount has a role: set at least one, such as \
                 node-controller=kube-system/cloud-node-controller, or --authentication none"
                    .to_owned(),
            );
        }
        match kind {
            AuthenticationKind::None => Some(Callers::Anyone),
            AuthenticationKind::ServiceAccount => {
                let keys = self.keys(faults)?;
                Some(Callers::Offline { audience: self.audience(), keys })
            }
            AuthenticationKind::TokenReview => Some(Callers::Review { audience: self.audience() }),
            AuthenticationKind::ClientCertificate => {
                if plain {
                    faults.push(
                        "--authentication client-certificate: requires TLS: set --tls-ca-cert or --tls-cert"
                            .to_owned(),
                    );
                }
                if self.client_ca.is_none() {
                    faults.push(
                        "--client-ca: is missing: set the file with the CA certificates of callers"
                            .to_owned(),
                    );
                }
                if self.trust_domain.is_none() {
                    faults
                        .push("--trust-domain: is missing: set the domain of callers' SPIFFE IDs".to_owned());
                }
                Some(Callers::Certificate { trust_domain: self.trust_domain.as_deref()?.into() })
            }
        }
    }

    fn audience(&self) -> String {
        self.token_audience.clone().unwrap_or_else(|| AUDIENCE.to_owned())
    }

    fn keys(&self, faults: &mut Vec<String>) -> Option<TokenKeys> {
        match (&self.token_jwks, &self.token_issuer) {
            (None, issuer) => Some(TokenKeys::Discovered { issuer: issuer.clone() }),
            (Some(path), Some(issuer)) => {
                Some(TokenKeys::Mounted { path: path.clone(), issuer: issuer.clone() })
            }
            (Some(_), None) => {
                faults.push(
                    "--token-issuer: is missing: set the issuer of the keys in --token-jwks".to_owned(),
                );
                None
            }
        }
    }

    /// Refuses flags that have no effect, because users may rely on them.
    fn unused(&self, kind: AuthenticationKind, faults: &mut Vec<String>) {
        let offline = kind == AuthenticationKind::ServiceAccount;
        let tokens = offline || kind == AuthenticationKind::TokenReview;
        let certificates = kind == AuthenticationKind::ClientCertificate;
        for (flag, given, used, by) in [
            ("--identity", !self.identity.is_empty(), tokens || certificates, "service-account"),
            ("--token-issuer", self.token_issuer.is_some(), offline, "service-account"),
            ("--token-jwks", self.token_jwks.is_some(), offline, "service-account"),
            ("--token-audience", self.token_audience.is_some(), tokens, "service-account or token-review"),
            ("--client-ca", self.client_ca.is_some(), certificates, "client-certificate"),
            ("--trust-domain", self.trust_domain.is_some(), certificates, "client-certificate"),
        ] {
            if given && !used {
                faults.push(format!("{flag}: has no effect: set --authentication {by}, or remove the flag"));
            }
        }
    }
}

/// Requires both files of a pair, or neither.
fn pair(
    certificate_flag: &str,
    certificate: &Option<PathBuf>,
    key_flag: &str,
    key: &Option<PathBuf>,
    faults: &mut Vec<String>,
) -> Option<(PathBuf, PathBuf)> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        (Some(_), None) => {
            faults.push(format!("{key_flag}: is missing: set the key of {certificate_flag}"));
            None
        }
        (None, Some(_)) => {
            faults.push(format!("{certificate_flag}: is missing: set the certificate of {key_flag}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        security: SecurityOptions,
    }

    fn checked(address: &str, flags: &str) -> Result<Settings, String> {
        let flags = ["adapter"].into_iter().chain(flags.split_whitespace());
        let flags = Flags::try_parse_from(flags).map_err(|error| error.to_string())?;
        flags.security.check(&address.parse()?).map_err(|faults| faults.join("\n"))
    }

    const TLS: &str = "--tls-ca-cert ca.crt --tls-ca-key ca.key";
    const NODE: &str = "--identity node-controller=kube-system/cnc";

    #[test]
    fn plaintext_is_local_unless_insecure() {
        for (address, flags, good) in [
            ("127.0.0.1:8443", "", true),
            ("[::1]:8443", "", true),
            ("unix:/run/adapter.sock", "", true),
            ("0.0.0.0:8443", "", false),
            ("192.0.2.1:8443", "", false),
            ("0.0.0.0:8443", "--insecure", true),
        ] {
            let said = checked(address, flags);
            assert_eq!(said.is_ok(), good, "{address} {flags}: {said:?}");
            match said {
                Ok(settings) => assert_eq!(settings.callers, Callers::Anyone),
                Err(fault) => {
                    assert!(fault.contains("--tls-ca-cert") && fault.contains("--insecure"), "{fault}");
                }
            }
        }
    }

    #[test]
    fn tls_requires_authentication_by_default() {
        let settings = checked("0.0.0.0:8443", &format!("{TLS} {NODE} --cluster-id abc")).expect("complete");
        let keys = TokenKeys::Discovered { issuer: None };
        assert_eq!(settings.callers, Callers::Offline { audience: AUDIENCE.into(), keys });
        let names = ["cloud-adapter".to_owned()].to_vec();
        let identity =
            ServerIdentity::Authority { certificate: "ca.crt".into(), key: "ca.key".into(), names };
        assert_eq!(settings.tls, Some(TlsFiles { identity, client_ca: None }));
        assert_eq!(settings.served, Served::Given("abc".to_owned()));
        let anyone = checked("0.0.0.0:8443", &format!("{TLS} --authentication none")).expect("said");
        assert_eq!((anyone.callers, anyone.served), (Callers::Anyone, Served::Any));
    }

    #[test]
    fn cluster_of_authenticated_callers_is_read_from_the_api_server() {
        for flags in [
            format!("{TLS} {NODE}"),
            format!("{NODE} --authentication token-review"),
            format!("{TLS} {NODE} --authentication client-certificate --client-ca a --trust-domain b"),
        ] {
            assert_eq!(checked("127.0.0.1:0", &flags).expect(&flags).served, Served::OfApiServer);
        }
    }

    #[test]
    fn authentication_kinds_require_their_flags() {
        for (flags, wanted) in [
            (format!("{TLS} --cluster-id abc"), "--identity: no ServiceAccount has a role"),
            (format!("{TLS} {NODE} --cluster-id a --token-jwks keys.json"), "--token-issuer: is missing"),
            (format!("{TLS} {NODE} --authentication client-certificate"), "--client-ca: is missing"),
            (format!("{TLS} {NODE} --authentication client-certificate"), "--trust-domain: is missing"),
            (
                format!("{NODE} --authentication client-certificate --client-ca a --trust-domain b"),
                "--authentication client-certificate: requires TLS",
            ),
        ] {
            let fault = checked("127.0.0.1:0", &flags).expect_err(&flags);
            assert!(fault.contains(wanted), "{flags}: {fault}");
        }
        for flags in [
            format!("{NODE} --authentication token-review --cluster-id a --token-audience x"),
            format!("{NODE} --authentication service-account --cluster-id a --token-jwks k --token-issuer i"),
            format!(
                "{TLS} {NODE} --authentication client-certificate --cluster-id a --client-ca a --trust-domain b"
            ),
        ] {
            assert!(checked("127.0.0.1:0", &flags).is_ok(), "{flags}");
        }
    }

    #[test]
    fn conflicting_flags_are_refused_with_the_fix() {
        for (flags, wanted) in [
            ("--tls-ca-cert a", "--tls-ca-key: is missing"),
            ("--tls-key a", "--tls-cert: is missing"),
            ("--tls-ca-secret a/b", "--tls-ca-cert"),
            (&format!("{TLS} --tls-ca-secret b"), "use NAMESPACE/NAME"),
            ("--tls-cert a --tls-key b --tls-ca-cert a --tls-ca-key b", "set only one pair"),
            ("--tls-server-names a", "--tls-server-names: applies to certificates"),
            ("--tls-cert a --tls-key b --insecure --authentication none", "--insecure: applies to plaintext"),
            (NODE, "--identity: has no effect"),
            ("--token-jwks a", "--token-jwks: has no effect"),
            ("--client-ca a", "--client-ca: has no effect"),
            ("--identity admin=a/b", "admin"),
            ("--authentication password", "service-account"),
        ] {
            let fault = checked("127.0.0.1:0", flags).expect_err(flags);
            assert!(fault.contains(wanted), "{flags}: {fault}");
        }
    }
}
