//! One bash for a page, as its reader has one: what is set, and what runs in the background, is there for the commands that follow.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::bed::WITHIN;

/// Begins the line that ends what a command printed.
const END: &str = "--end-of-command--";
/// Who searches and finds nothing has searched: no error, as long as the page shows nothing that is to be found.
/// Commands come between NULs on standard input, which is none of theirs.
const LOOP: &str = r#"
grep() { command grep "$@" || [ "$?" -eq 1 ]; }
exec 3<&0 </dev/null 2>&1
while IFS= read -r -d '' command <&3; do
    eval "$command" 3<&-
    printf '\n%s %s\n' "$END" "$?"
done
"#;

/// A shell that waits for commands.
#[derive(Debug)]
pub(super) struct Session {
    bash: Child,
    group: Option<Pid>,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    ended: bool,
}

impl Session {
    /// Starts it with this environment and no other, as a process group of its own.
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

    /// The command's exit code, and what was printed meanwhile, also by what runs in the background.
    pub(super) async fn run(&mut self, command: &str) -> anyhow::Result<(i32, String)> {
        if self.ended {
            bail!("the shell has ended");
        }
        // Also if this is not waited for to its end: then the next command would read the rest of this one's output.
        self.ended = true;
        self.input.write_all(command.as_bytes()).await.context("the shell takes no command")?;
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
        let code = read.await.context("it does not end")??;
        let code = code.with_context(|| format!("the shell ended:\n{printed}"))?;
        self.ended = false;
        Ok((code, printed))
    }

    /// Whether nothing more can be typed.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Fails only when all of it is gone already.
        self.group.map(|group| kill_process_group(group, Signal::KILL).ok());
        self.bash.start_kill().ok();
    }
}
