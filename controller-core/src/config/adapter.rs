//! The flags for the connection to the adapter: its address, its certificate, and the credentials of this controller.

use std::path::PathBuf;

use adapter_client::{ChannelSecurity, Connection, Target};

use super::Faults;

/// Flags for a secure connection to the adapter. Flatten this struct into a program's own arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct AdapterArgs {
    /// Address of the cloud adapter: one endpoint, or all its replicas
    ///
    ///   http://HOST:PORT, https://HOST:PORT
    ///       one endpoint
    ///   kubernetes:///NAMESPACE/SERVICE[:PORTNAME]
    ///       all endpoints of a Service, through its EndpointSlices
    ///   dns:///HOST:PORT
    ///       all addresses of a name, such as that of a headless Service
    ///   static:///HOST:PORT,HOST:PORT
    ///       these replicas
    ///   unix:/PATH
    ///       a socket of this host
    ///
    /// With several replicas, calls go to the replica that reports that it serves (grpc.health.v1); calls wait for such a replica for up to
    /// 15 s.
    #[expect(rustdoc::broken_intra_doc_links, reason = "the help text shows this value unchanged")]
    #[arg(long, value_name = "URL", default_value = "http://cloud-adapter:8443", verbatim_doc_comment)]
    pub adapter_endpoint: String,

    /// PEM file with the CA of the adapter's certificate; while a CA is replaced, the file may contain several certificates. The controller
    /// reads the file again for each new connection. With kubernetes:///, dns:/// and static:/// this flag enables TLS
    #[arg(long, value_name = "FILE")]
    pub adapter_ca_file: Option<PathBuf>,

    /// Name that the adapter's certificate must contain. Default: the host of an https URL, else cloud-adapter
    #[arg(long, value_name = "NAME")]
    pub adapter_server_name: Option<String>,

    /// File with the token that authenticates this controller to the adapter, such as a projected ServiceAccount token. The controller
    /// reads the file again every second
    #[arg(long, value_name = "FILE")]
    pub adapter_token_file: Option<PathBuf>,

    /// PEM file with the client certificate that authenticates this controller to the adapter. Needs --adapter-client-key
    #[arg(long, value_name = "FILE")]
    pub adapter_client_cert: Option<PathBuf>,

    /// PEM file with the key of --adapter-client-cert
    #[arg(long, value_name = "FILE")]
    pub adapter_client_key: Option<PathBuf>,
}

impl AdapterArgs {
    /// Validates the flags, and reads all files once.
    ///
    /// Returns `None` if a flag is invalid. `faults` then contains the reasons.
    pub fn check(&self, faults: &mut Faults) -> Option<Connection> {
        let endpoint = &self.adapter_endpoint;
        let target = faults.check("--adapter-endpoint <URL>", endpoint, endpoint.parse::<Target>())?;
        let security = ChannelSecurity {
            ca: self.adapter_ca_file.clone(),
            server_name: self.adapter_server_name.clone(),
            token: self.adapter_token_file.clone(),
            client_certificate: self.adapter_client_cert.clone(),
            client_key: self.adapter_client_key.clone(),
            ..ChannelSecurity::default()
        };
        let connection = Connection::new(target, &security);
        connection.map_err(|found| found.iter().for_each(|f| faults.add(f.flag, &f.value, &f.reason))).ok()
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
        adapter: AdapterArgs,
    }

    fn parse(flags: &[&str]) -> Result<String, String> {
        let arguments = ["program"].iter().chain(flags);
        let read = config::read(arguments, |args: &Args, faults| args.adapter.check(faults));
        read.map(|connection| connection.target().to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn every_form_of_a_target_is_accepted() {
        assert_eq!(parse(&[]).expect("the default"), "http://cloud-adapter:8443");
        for target in ["kubernetes:///cloud/adapter", "dns:///a:1", "static:///a:1,b:1", "unix:/a.sock"] {
            assert_eq!(parse(&["--adapter-endpoint", target]).expect(target), target);
        }
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let error = parse(&[
            "--adapter-endpoint=https://a:1",
            "--adapter-token-file=/nowhere/token",
            "--adapter-client-key=/nowhere/key",
        ]);
        let error = error.expect_err("three values are invalid");
        for words in [
            "'https://a:1' for '--adapter-endpoint': TLS needs the CA",
            "'/nowhere/token' for '--adapter-token-file': cannot be read",
            "'/nowhere/key' for '--adapter-client-key': a key needs its certificate",
        ] {
            assert!(error.contains(words), "{words} is missing in:\n{error}");
        }
    }
}
