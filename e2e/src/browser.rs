//! A headless Chromium, driven over a pipe. It shows what users see of a page, and which requests the page makes.
//!
//! Source: the Chrome DevTools Protocol, <https://chromedevtools.github.io/devtools-protocol/>; with `--remote-debugging-pipe`, messages
//! end with a zero byte and no WebSocket is needed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::process::{guarded, in_path, spawn};

/// The names of the executable in Linux distributions.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// The deadline of every command. The first answer takes seconds on a busy host.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// Flags that disable all requests of the browser itself.
const FLAGS: [&str; 11] = [
    "--headless=new",
    "--remote-debugging-pipe",
    // The sandbox does not work as root or in most containers; the browser loads only pages of this project.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
];
/// Moves the pipes to the file descriptors that the browser expects: 3 for input, 4 for output.
const PIPES: &str = "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null";

/// A running browser with one tab. Dropping this value ends the browser.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    last: u64,
    session: String,
    /// Events that were not read yet.
    events: Vec<Value>,
}

/// Settings of the browser window.
#[derive(Clone, Copy, Debug)]
pub struct Screenshot {
    /// Width in CSS pixels.
    pub width: u32,
    /// Whether the user prefers a dark colour scheme.
    pub dark: bool,
}

/// The observed page.
#[derive(Debug)]
pub struct Seen {
    /// The width of the page, in CSS pixels.
    pub width: u64,
    /// All requests that the page made.
    pub requests: Vec<String>,
    /// Messages of the console, such as violations of the page's content security policy.
    pub complaints: Vec<String>,
    /// A PNG image of the whole page.
    pub picture: Vec<u8>,
}

impl Browser {
    /// Starts a browser that keeps its files in `dir`.
    pub fn start(dir: &Path) -> anyhow::Result<Self> {
        let program = program()?;
        let mut command = guarded(&in_path("sh").context("cannot find sh")?);
        let log = fs::File::create(dir.join("browser.log"))?;
        command.args(["-c", PIPES]).arg(&program).args(FLAGS);
        command.arg(format!("--user-data-dir={}", dir.join("browser").display()));
        command.env("HOME", dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = spawn(command).with_context(|| format!("cannot start {}", program.display()))?;
        let to = child.stdin.take().context("no pipe to the browser")?;
        let from = child.stdout.take().context("no pipe from the browser")?;
        let (heard, inbox) = channel();
        thread::spawn(move || {
            for message in BufReader::new(from).split(0) {
                let Some(message) = message.ok().and_then(|it| serde_json::from_slice(&it).ok()) else {
                    return;
                };
                if heard.send(message).is_err() {
                    return;
                }
            }
        });
        let mut this = Self { child, to, from: inbox, last: 0, session: String::new(), events: Vec::new() };
        let target = this.call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let target = json!({ "targetId": at(&target, "/targetId"), "flatten": true });
        let session = this.call("Target.attachToTarget", &target)?;
        this.session = at(&session, "/sessionId").as_str().context("the answer has no session")?.to_owned();
        for domain in ["Page", "Network", "Log", "Runtime"] {
            this.call(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(this)
    }

    /// Loads a page and observes it.
    pub fn look(&mut self, url: &str, Screenshot { width, dark }: Screenshot) -> anyhow::Result<Seen> {
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &media)?;
        let phone = width < 600;
        let screen = json!({ "width": width, "height": 844, "deviceScaleFactor": if phone { 2 } else { 1 }, "mobile": phone });
        self.call("Emulation.setDeviceMetricsOverride", &screen)?;
        self.events.clear();
        let gone = self.call("Page.navigate", &json!({ "url": url }))?;
        ensure!(gone.get("errorText").is_none(), "{url}: {gone}");
        self.wait("Page.loadEventFired")?;
        let size =
            self.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")?;
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": at(&size, "/1"), "scale": 1 });
        let picture = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let picture = self.call("Page.captureScreenshot", &picture)?;
        let picture = STANDARD
            .decode(at(&picture, "/data").as_str().unwrap_or_default())
            .context("the answer has no picture")?;
        let text = |event: &Value, place: &str| event.pointer(place).map(ToString::to_string);
        let of = |method: &'static str| self.events.iter().filter(move |it| at(it, "/method") == method);
        let requests = of("Network.requestWillBeSent");
        let requests =
            requests.filter_map(|it| Some(it.pointer("/params/request/url")?.as_str()?.to_owned()));
        let complaints =
            of("Log.entryAdded").chain(of("Runtime.consoleAPICalled")).chain(of("Runtime.exceptionThrown"));
        Ok(Seen {
            width: at(&size, "/0").as_u64().context("the answer has no width")?,
            requests: requests.collect(),
            complaints: complaints.filter_map(|it| text(it, "/params")).collect(),
            picture,
        })
    }

    /// The value of a JavaScript expression in the page. Works even if the page's policy forbids scripts.
    pub fn evaluate(&mut self, expression: &str) -> anyhow::Result<Value> {
        let expression = json!({ "expression": expression, "returnByValue": true });
        let said = self.call("Runtime.evaluate", &expression)?;
        ensure!(said.get("exceptionDetails").is_none(), "{said}");
        Ok(at(&said, "/result/value"))
    }

    fn call(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.last += 1;
        let message = match self.session.as_str() {
            "" => json!({ "id": self.last, "method": method, "params": params }),
            session => {
                json!({ "id": self.last, "method": method, "params": params, "sessionId": session })
            }
        };
        let mut message = serde_json::to_vec(&message)?;
        message.push(0);
        self.to.write_all(&message).and_then(|()| self.to.flush()).context("the browser has ended")?;
        let id = self.last;
        let answer = self.hear(method, |message| at(message, "/id") == id)?;
        ensure!(answer.get("error").is_none(), "{method}: {answer}");
        Ok(at(&answer, "/result"))
    }

    /// Waits until this event has happened since the events were cleared.
    fn wait(&mut self, event: &str) -> anyhow::Result<()> {
        if self.events.iter().any(|it| at(it, "/method") == event) {
            return Ok(());
        }
        let heard = self.hear(event, |message| at(message, "/method") == event)?;
        self.events.push(heard);
        Ok(())
    }

    fn hear(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let end = Instant::now() + ANSWERS_WITHIN;
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            match self.from.recv_timeout(rest) {
                Ok(message) if is_it(&message) => return Ok(message),
                Ok(message) => self.events.push(message),
                Err(gone) => bail!("the browser does not answer {what}: {gone}"),
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser's child processes end with it.
        let _gone = self.child.kill().is_ok();
        let _waited = self.child.wait().is_ok();
    }
}

/// Returns a part of an answer; null if the part is missing.
fn at(answer: &Value, place: &str) -> Value {
    answer.pointer(place).cloned().unwrap_or_default()
}

fn program() -> anyhow::Result<PathBuf> {
    let found = PROGRAMS.iter().find_map(|name| in_path(name));
    found.context("Chromium not found: install Debian's package chromium, as .ci/run does")
}
