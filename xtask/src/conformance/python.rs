//! Starts two processes of the Python adapter, one without and one with authentication. Writes the parameter file that describes the
//! processes to the suite.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

use super::{program, succeed, with_junit};
use crate::cargo;
use crate::python::Python;

/// Keys of the parameter file and the roles that their tokens grant. `stranger` is authenticated but has no role.
const IDENTITIES: [(&str, &str); 5] = [
    ("nodeController", "node-controller"),
    ("serviceController", "service-controller"),
    ("routeController", "route-controller"),
    ("operator", "operator"),
    ("stranger", ""),
];

/// The hooks and the variables of each hook. A hook sends a request to the console of the adapter's cloud.
const HOOKS: [(&str, &[&str]); 12] = [
    ("createInstances", &["COUNT", "NAME"]),
    ("deleteInstances", &["PROVIDER_IDS"]),
    ("stopInstance", &["PROVIDER_ID"]),
    ("startInstance", &["PROVIDER_ID"]),
    ("changeInstance", &["PROVIDER_ID"]),
    ("touchInstance", &["PROVIDER_ID"]),
    ("createLoadBalancer", &["NAME"]),
    ("deleteLoadBalancer", &["VENDOR_ID"]),
    ("describeLoadBalancer", &["VENDOR_ID"]),
    ("createRoute", &["DESTINATION", "PROVIDER_ID"]),
    ("deleteRoute", &["VENDOR_ID"]),
    ("listOwned", &["CLUSTER_ID"]),
];

const OF_THE_CLOUD: &str = "\
samples: {missingProviderId: 'mem://desk/i-0', foreignProviderId: 'mem://elsewhere/i-1'}
timings: {converge: 10s, ready: 15s, drift: 5s, connectionAge: 10s}
";
/// Maximum age of a connection in seconds. The age is so short that connections end during the suite.
const CONNECTION_AGE: &str = "--max-connection-age=5";
/// The number of attempts to connect and the time between two attempts: ten seconds in total.
const STARTS: (u32, Duration) = (200, Duration::from_millis(50));

pub(super) fn run(args: &[String]) -> anyhow::Result<()> {
    let python = Python::get()?;
    let home = cargo::root().join("target").join("python");
    let folder = home.join(format!("conformance-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let done = suite(&python, &folder, args);
    if done.is_ok() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    done.with_context(|| format!("see its log and parameter file in {}", folder.display()))
}

fn suite(python: &Python, folder: &Path, args: &[String]) -> anyhow::Result<()> {
    let mut tokens = String::new();
    let mut identities = String::new();
    for (key, role) in IDENTITIES {
        let file = folder.join(format!("{key}.token"));
        fs::write(&file, format!("token-of-{key}")).context("cannot write a token")?;
        tokens.push_str(&format!("token-of-{key}: {role}\n"));
        identities.push_str(&format!("    {key}: {{tokenFile: '{}'}}\n", file.display()));
    }
    let known = folder.join("tokens");
    fs::write(&known, tokens).context("cannot write the tokens")?;
    let known = known.display().to_string();

    let open = Adapter::start(python, folder, "open", &[])?;
    let secured = Adapter::start(python, folder, "secured", &["--tokens", &known])?;
    let (open, shut) = (&open.params, &secured.params);
    let params = folder.join("params.yaml");
    let text =
        format!("lanes:\n- {open}secured:\n  {shut}  identities:\n{identities}{}{OF_THE_CLOUD}", hooks());
    fs::write(&params, text).context("cannot write the parameter file")?;
    let args = with_junit("python", args)?;
    succeed(program("adapter-conformance").args(["--tier", "T1", "--params"]).arg(params).args(args))
}

/// Formats the hooks. Each hook sends its variables to the console as a form.
fn hooks() -> String {
    let mut text = String::from("hooks:\n");
    for (name, variables) in HOOKS {
        let form: String =
            variables.iter().map(|name| format!(" --data-urlencode \"{name}=${name}\"")).collect();
        text.push_str(&format!("  {name}: 'curl -fsS{form} \"$CONSOLE/{name}\"'\n"));
    }
    text
}

/// A running adapter. Dropping this value stops the process.
struct Adapter {
    process: Child,
    /// The adapter's part of the parameter file.
    params: String,
}

impl Adapter {
    /// Starts an adapter, and waits until it listens.
    fn start(python: &Python, folder: &Path, name: &str, flags: &[&str]) -> anyhow::Result<Self> {
        let [grpc, http, console] = [
            test_support::ports::loopback()?,
            test_support::ports::loopback()?,
            test_support::ports::loopback()?,
        ];
        let log = fs::File::create(folder.join(format!("{name}.log"))).context("cannot write its log")?;
        let mut command = python.command(&["-m", "tests.console", CONNECTION_AGE]);
        command.args([format!("--grpc-address={grpc}"), format!("--http-address={http}")]);
        // The suite makes the adapter adopt load balancers that the suite created. The adapter needs this grant for that.
        command.arg("--grant=*:adopt=*");
        command.arg(format!("--console-address={console}")).args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().context("cannot start the adapter")?;
        let env = format!("env: {{CONSOLE: 'http://{console}'}}");
        let params = format!("endpoint: http://{grpc}\n  http: http://{http}\n  {env}\n");
        let mut adapter = Self { process, params };
        for _ in 0..STARTS.0 {
            if TcpStream::connect(grpc).is_ok() {
                return Ok(adapter);
            }
            if let Some(status) = adapter.process.try_wait()? {
                bail!("the adapter {name} ended: {status}");
            }
            thread::sleep(STARTS.1);
        }
        bail!("the adapter {name} does not listen on {grpc}")
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // Both calls fail if the process has already ended.
        self.process.kill().and_then(|()| self.process.wait()).map(drop).unwrap_or_default();
    }
}
