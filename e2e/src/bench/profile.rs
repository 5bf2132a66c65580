//! Measures where the CPU time of a process is spent. `perf` samples the process without changing it.

mod groups;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::eventually;
use crate::process::{Launch, Process, in_path, tail};

pub(super) use groups::Profile;

/// Samples per second of CPU time. Not a round number, so that sampling does not coincide with periodic work.
const FREQUENCY: &str = "997";
/// The time in which `perf` writes its remaining data.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// The running `perf` processes, if any.
#[derive(Debug, Default)]
pub(super) struct Recordings(BTreeMap<String, Recording>);

impl Recordings {
    /// Starts one `perf` for each process, given by name and ID.
    pub(super) async fn start(dir: &Path, scenario: &str, of: &[(String, u32)]) -> anyhow::Result<Self> {
        let mut all = BTreeMap::new();
        for (name, pid) in of {
            all.insert(name.clone(), Recording::start(dir, &format!("{scenario}-{name}"), *pid).await?);
        }
        Ok(Self(all))
    }

    pub(super) async fn finish(self) -> anyhow::Result<BTreeMap<String, Profile>> {
        let mut all = BTreeMap::new();
        for (name, recording) in self.0 {
            all.insert(name, recording.finish().await?);
        }
        Ok(all)
    }
}

/// The running `perf` of one process.
#[derive(Debug)]
struct Recording {
    process: Process,
    perf: PathBuf,
    file: PathBuf,
    log: PathBuf,
}

impl Recording {
    /// Starts recording a process. The recording is stored in the folder.
    async fn start(dir: &Path, name: &str, pid: u32) -> anyhow::Result<Self> {
        let perf = in_path("perf").context("--profile needs `perf` (Debian: linux-perf) in PATH")?;
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let file = dir.join(format!("{name}.perf"));
        let args = ["record", "--quiet", "--event=cpu-clock", "--call-graph=fp", "--freq", FREQUENCY];
        let mut args = args.map(str::to_owned).to_vec();
        args.extend([format!("--output={}", file.display()), format!("--pid={pid}")]);
        let launch = Launch {
            name: format!("perf-{name}"),
            program: perf.clone(),
            args,
            env: BTreeMap::new(),
            log_dir: dir.to_path_buf(),
        };
        // This file comes from an earlier run.
        std::fs::remove_file(&file).ok();
        let this = Self { process: launch.start()?, perf, file, log: launch.log() };
        // `perf` writes its header when it is ready to record.
        let begun = eventually("perf is recording", ENDS_WITHIN, || async {
            let written = std::fs::metadata(&this.file).map_or(0, |it| it.len());
            ensure!(written > 0, "perf has not written its header");
            Ok(())
        });
        begun.await.with_context(|| tail(&this.log))?;
        Ok(this)
    }

    /// Ends the recording, and returns the samples up to now.
    async fn finish(mut self) -> anyhow::Result<Profile> {
        self.process.terminate(ENDS_WITHIN).await?;
        let output = Command::new(&self.perf)
            .args(["script", "--fields=ip,sym,dso", "--input"])
            .arg(&self.file)
            .output()
            .context("cannot start perf")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "perf cannot read its file: {errors}; {}", tail(&self.log));
        let profile = Profile::of(&String::from_utf8_lossy(&output.stdout));
        ensure!(profile.samples > 0, "perf recorded no samples; {}", tail(&self.log));
        Ok(profile)
    }
}
