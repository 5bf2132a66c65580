//! The flags for pages over TLS, with the names of the former cloud controller manager. Each program defines its own flag for plain HTTP.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use clap::ValueEnum;
use telemetry::http::{Certificate, Readers, Tls, TlsError, Version};

use super::Faults;

/// Flags for pages over TLS. Flatten this struct into a program's own arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct HttpArgs {
    /// Port on which the pages of --http-address are also served over TLS, such as 10258. By default, or with 0, they are not served over
    /// TLS. Callers are not authenticated
    #[arg(long, value_name = "PORT", allow_negative_numbers = true)]
    pub secure_port: Option<String>,

    /// Which callers may read /status, /explain and /plan, on both ports. All callers that reach a port may read metrics and probes
    #[arg(long, value_enum, value_name = "READERS", default_value = "local")]
    pub status_pages: Readers,

    /// Address of --secure-port [default: 0.0.0.0]
    #[arg(long, value_name = "IP")]
    pub bind_address: Option<String>,

    /// PEM file with the certificate of --secure-port, the leaf first. The controller reads the file again for each connection. Without
    /// this flag and --cert-dir, a self-signed certificate is created at each start
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,

    /// PEM file with the key of --tls-cert-file
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,

    /// Directory with cloud-controller-manager.crt and .key; a self-signed pair is created if neither file exists. Ignored if
    /// --tls-cert-file is set
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,

    /// Oldest accepted TLS version [default: VersionTLS12]
    #[arg(long, value_name = "VERSION")]
    pub tls_min_version: Option<MinVersion>,
}

/// TLS versions, with the names that the former cloud controller manager uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MinVersion {
    /// TLS 1.2.
    #[value(name = "VersionTLS12")]
    Tls12,
    /// TLS 1.3.
    #[value(name = "VersionTLS13")]
    Tls13,
}

impl MinVersion {
    const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "VersionTLS12",
            Self::Tls13 => "VersionTLS13",
        }
    }
}

/// Address and certificate of the pages over TLS.
#[derive(Clone, Debug)]
pub struct HttpsEndpoints {
    /// The address.
    pub address: SocketAddr,
    /// The certificate.
    pub tls: Arc<Tls>,
}

impl HttpArgs {
    /// Validates the flags, and reads or creates the certificate. Returns `None` without pages over TLS, or if a flag is invalid. In the
    /// latter case, `faults` contains the reason.
    pub fn check(&self, faults: &mut Faults) -> Option<HttpsEndpoints> {
        let Some(port) = &self.secure_port else {
            self.refuse_what_has_no_port(faults);
            return None;
        };
        let judged = port.parse::<u16>().map_err(|_error| "use a port from 1 to 65535, or 0 for none");
        let port = faults.check("--secure-port <PORT>", port, judged)?;
        if port == 0 {
            return None;
        }
        let ip = match &self.bind_address {
            None => Some(IpAddr::from([0; 4])),
            Some(text) => {
                let fix = "use an IP address, such as 0.0.0.0 for all of IPv4 or :: for all of both families";
                faults.check("--bind-address <IP>", text, text.parse().map_err(|_error| fix))
            }
        };
        let certificate = self.certificate(faults)?;
        let version = match self.tls_min_version {
            None | Some(MinVersion::Tls12) => Version::Tls12,
            Some(MinVersion::Tls13) => Version::Tls13,
        };
        let names = ["localhost".to_owned()].into_iter().chain(ip.map(|ip| ip.to_string()));
        let tls = Tls::start(certificate, version, &names.collect::<Vec<_>>());
        let tls = tls.map_err(|error| self.blame(&error, faults)).ok()?;
        Some(HttpsEndpoints { address: SocketAddr::new(ip?, port), tls: Arc::new(tls) })
    }

    /// Refuses flags that have no effect without --secure-port.
    fn refuse_what_has_no_port(&self, faults: &mut Faults) {
        let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        for (flag, value) in [
            ("--bind-address <IP>", self.bind_address.clone()),
            ("--tls-cert-file <FILE>", shown(&self.tls_cert_file)),
            ("--tls-private-key-file <FILE>", shown(&self.tls_private_key_file)),
            ("--cert-dir <DIR>", shown(&self.cert_dir)),
            ("--tls-min-version <VERSION>", self.tls_min_version.map(|version| version.name().to_owned())),
        ] {
            if let Some(value) = value {
                faults.add(
                    flag,
                    &value,
                    "has no effect without --secure-port: set --secure-port=10258, too, or leave it out",
                );
            }
        }
    }

    fn certificate(&self, faults: &mut Faults) -> Option<Certificate> {
        match (&self.tls_cert_file, &self.tls_private_key_file, &self.cert_dir) {
            (Some(certificate), Some(key), _) => {
                Some(Certificate::Files { certificate: certificate.clone(), key: key.clone() })
            }
            (Some(certificate), None, _) => {
                let fix = "a certificate needs its key: set --tls-private-key-file, too";
                faults.add("--tls-cert-file <FILE>", &certificate.display().to_string(), fix);
                None
            }
            (None, Some(key), _) => {
                let fix = "a key needs its certificate: set --tls-cert-file, too";
                faults.add("--tls-private-key-file <FILE>", &key.display().to_string(), fix);
                None
            }
            (None, None, Some(directory)) => Some(Certificate::Directory(directory.clone())),
            (None, None, None) => Some(Certificate::Own),
        }
    }

    /// Adds the error to `faults`, under the flag that names the file.
    fn blame(&self, error: &TlsError, faults: &mut Faults) {
        let path = match error {
            TlsError::File { path, .. } | TlsError::Content { path, .. } => Some(path),
            TlsError::Pair(_) | TlsError::Make(_) => None,
        };
        let is_key = self.tls_private_key_file.as_ref().is_some_and(|key| path == Some(key));
        let (flag, value) = match (&self.tls_cert_file, &self.tls_private_key_file, &self.cert_dir) {
            (_, Some(key), _) if is_key => ("--tls-private-key-file <FILE>", key),
            (Some(certificate), ..) => ("--tls-cert-file <FILE>", certificate),
            (.., Some(directory)) => ("--cert-dir <DIR>", directory),
            _ => return faults.add("--secure-port <PORT>", "", error),
        };
        faults.add(flag, &value.display().to_string(), error);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config;

    #[derive(Debug, Parser)]
    struct Args {
        #[command(flatten)]
        http: HttpArgs,
    }

    fn parse(flags: &[&str]) -> Result<Option<SocketAddr>, String> {
        let arguments = ["program"].iter().chain(flags);
        let read = config::read(arguments, |args: &Args, faults| Some(args.http.check(faults)));
        read.map(|pages| pages.map(|pages| pages.address)).map_err(|error| error.to_string())
    }

    // Behaviour: P18
    #[test]
    fn no_secure_port_is_opened_by_default() {
        assert_eq!(parse(&[]), Ok(None));
        assert_eq!(
            parse(&["--secure-port=0", "--tls-cert-file=/nowhere"]),
            Ok(None),
            "the certificate is not read"
        );
        let address = |text: &str| Ok(Some(text.parse().expect("good")));
        assert_eq!(parse(&["--secure-port=10258"]), address("0.0.0.0:10258"));
        assert_eq!(parse(&["--secure-port=1", "--bind-address=::"]), address("[::]:1"));
        assert_eq!(parse(&["--secure-port=1", "--tls-min-version=VersionTLS13"]), address("0.0.0.0:1"));
    }

    // Behaviour: P18
    #[test]
    fn invalid_values_name_their_flag_and_the_fix() {
        for (flags, words) in [
            (&["--secure-port=65536"][..], "'--secure-port <PORT>': use a port from 1 to 65535"),
            (&["--secure-port=-1"], "'--secure-port <PORT>': use a port from 1 to 65535"),
            (&["--secure-port=1", "--bind-address=localhost"], "'--bind-address <IP>': use an IP address"),
            (&["--secure-port=1", "--tls-min-version=VersionTLS11"], "VersionTLS12"),
            (&["--secure-port=1", "--tls-cert-file=/a"], "set --tls-private-key-file, too"),
            (&["--secure-port=1", "--tls-private-key-file=/a"], "set --tls-cert-file, too"),
            (
                &["--secure-port=1", "--tls-cert-file=/nowhere/a", "--tls-private-key-file=/nowhere/b"],
                "'/nowhere/a' for '--tls-cert-file <FILE>': /nowhere/a: No such file",
            ),
            (&["--secure-port=1", "--cert-dir=/dev/null"], "'/dev/null' for '--cert-dir <DIR>'"),
            (&["--tls-cert-file=/a"], "set --secure-port=10258, too"),
            (&["--bind-address=::"], "set --secure-port=10258, too"),
            (&["--cert-dir=/a"], "set --secure-port=10258, too"),
            (&["--tls-min-version=VersionTLS12"], "set --secure-port=10258, too"),
        ] {
            let error = parse(flags).expect_err("a fault");
            assert!(error.contains(words), "{flags:?}: {words} is missing in:\n{error}");
        }
    }
}
