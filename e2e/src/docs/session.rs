//! A bash session for one page: variables and background processes last until the end of the page, as for a reader.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::eventually::WITHIN;

/// The beginning of the line that marks the end of a command's output.
const END: &str = "--end-of-command--";
/// A grep without a match is not an error here, because the page shows whether there must be a match. The shell reads commands from
/// standard input, separated by NULs; the commands have no standard input themselves.
const LOOP: &str = r#"
grep() { command grep "$@" || [ "$?" -eq 1 ]; }
exec 3<&0 </dev/null 2>&1
while IFS= read -r -d '' command <&3; do
    eval "$command" 3<&-
    printf '\n%s %s\n' "$END" "$?"
done
"#;

#[derive(Debug)]
pub(super) struct Session {
    bash: Child,
    group: Option<Pid>,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    ended: bool,
}

impl Session {
    /// Starts a shell with only this environment, in a separate process group.
    pub(super) fn start(folder: &Path, env: &[(String, String)]) -> anyhow::Result<Self> {
        let mut bash = Command::new("bash");
        bash.args(["-uo", "pipefail", "-c", LOOP]).current_dir(folder).process_group(0).kill_on_drop(true);
        bash.env_clear().env("END", END).envs(env.iter().map(|(name, value)| (name, value)));
        let bash = bash.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut bash = bash.context("cannot start bash")?;
        let group = bash.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let input = bash.stdin.take().context("bash has no input")?;
        let output = BufReader::new(bash.stdout.take().context("bash has no output")?).lines();
        Ok(Self { bash, group, input, output, ended: false })
    }

    /// Returns the command's exit code and the output printed until it ended, including output of background processes.
    pub(super) async fn run(&mut self, command: &str) -> anyhow::Result<(i32, String)> {
        if self.ended {
            bail!("the shell has ended");
        }
        // `ended` is set before the read. If this future is dropped, the next command would otherwise read the rest of this output.
        self.ended = true;
        self.input.write_all(command.as_bytes()).await.context("the shell does not accept the command")?;
        self.input.write_all(b"\0").await?;
        self.input.flush().await?;
        let mut printed = String::new();
        let read = timeout(2 * WITHIN, async {
            while let Some(line) = self.output.next_line().await? {
                if let Some(code) = line.strip_prefix(END) {
                    return Ok(code.trim().parse().ok());
                }
                printed.push_str(&line);
                printed.push('\n');
            }
            anyhow::Ok(None)
        });
        let code = read.await.context("the command does not end")??;
        let code = code.with_context(|| format!("the shell ended:\n{printed}"))?;
        self.ended = false;
        Ok((code, printed))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Killing fails only if all processes have already ended.
        self.group.map(|group| kill_process_group(group, Signal::KILL).ok());
        self.bash.start_kill().ok();
    }
}
