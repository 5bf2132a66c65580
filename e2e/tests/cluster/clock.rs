//! Clocks of single containers jump. The clock of the host is shared with others, so it is not changed.
//!
//! A time namespace does not shift the wall clock. But a program gets the time from a function that the kernel maps into each process
//! (vDSO). A write to that memory affects only the process's own copy. The test replaces the function there by one that asks the kernel and
//! adds an offset. The process sees the same as after `date --set` or a step of NTP: the wall clock jumps, and the monotonic clock
//! continues.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use e2e::{events_on, eventually};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::ListParams;
use rustix::process::Signal;
use serde_json::json;

use crate::bed::{Bed, NAMESPACE, RELEASE, WITHIN, scenario};
use crate::processes::{id, of, pods, signal};
use crate::users::Users;

const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// Tolerance for the times of Events: much less than an hour, and more than the age of an Event.
const MARGIN: SignedDuration = SignedDuration::from_mins(10);
const FAILED: &str = "SyncLoadBalancerFailed: ";
const CONTROLLERS: [&str; 3] = ["node-controller", "route-controller", "service-controller"];

#[test]
#[cfg_attr(
    not(target_arch = "x86_64"),
    ignore = "the replacement of the clock function is written for x86-64"
)]
fn clock_jumps_stop_no_work_but_new_tokens_may_be_refused() {
    scenario(1, async |bed| {
        bed.install(&json!({})).await?;
        bed.until_initialised().await?;
        let users = Users::default();
        users.make(bed, "before").await?;
        let (processes, holders_before) = (of(1)?, holders(bed).await?);
        for offset in [HOUR, -HOUR] {
            let jump = async {
                for controller in CONTROLLERS {
                    set_clock(id(1, controller)?, offset)?;
                }
                wait_for_event_with_offset(bed, offset).await
            };
            users.work_while(bed, if offset.is_negative() { "back" } else { "ahead" }, jump).await?;
        }
        for controller in CONTROLLERS {
            set_clock(id(1, controller)?, SignedDuration::ZERO)?;
        }

        // Callers whose tokens the adapter has cached continue, because the cache does not depend on the wall clock.
        let adapter = id(1, "adapter-sim")?;
        users.work_while(bed, "adapter", async { set_clock(adapter, HOUR) }).await?;
        ensure!(of(1)? == processes, "a process has ended");
        ensure!(holders(bed).await? == holders_before, "a Lease was lost:\n{holders_before}");

        // For an adapter whose clock jumped, a new token has already expired. Nothing is deleted for this reason, and an Event reports the
        // failure.
        let newcomer = "app.kubernetes.io/component=service-controller";
        bed.kubectl(&["delete", "pod", "--namespace", NAMESPACE, "--selector", newcomer]).await?;
        let back = async {
            let why = eventually("an Event says why the Service waits", WITHIN, || async {
                let said = events_on(&bed.client, "Service", "rejected").await?;
                said.into_iter().find(|it| it.starts_with(FAILED)).context("no such Event")
            })
            .await?;
            bed.step(&format!("the Event says: {why}"));
            set_clock(adapter, SignedDuration::ZERO)
        };
        tokio::try_join!(users.make(bed, "rejected"), back)?;
        users.work_while(bed, "after", async { Ok(()) }).await?;
        users.nothing_lost_or_twice(bed).await?;
        ensure!(pods(bed, ".status.containerStatuses[*].restartCount").await? == ["0"; 4], "restarts");
        Ok(())
    });
}

/// Waits for an Event whose timestamp differs by `offset` from the real time, which shows that the clock has jumped. Users create Services,
/// so there are Events.
async fn wait_for_event_with_offset(bed: &Bed, offset: SignedDuration) -> anyhow::Result<()> {
    let events: Api<Event> = Api::default_namespaced(bed.client.clone());
    let ensured = ListParams::default().fields("reason=EnsuredLoadBalancer");
    eventually(&format!("an Event is {offset:#} off"), WITHIN, || async {
        let times = events.list(&ensured).await?.items.into_iter().filter_map(|it| it.first_timestamp);
        #[expect(clippy::disallowed_methods, reason = "the clock of the host is the reference")]
        let now = Timestamp::now();
        let mut off: Vec<_> = times.map(|it| it.0.duration_since(now)).collect();
        off.sort();
        ensure!(
            off.iter().any(|off| (*off - offset).abs() < MARGIN),
            "{:?} to {:?}",
            off.first(),
            off.last()
        );
        Ok(())
    })
    .await?;
    bed.step(&format!("Events are {offset:#} off"));
    Ok(())
}

/// Holders of the Leases, and the times of acquisition.
async fn holders(bed: &Bed) -> anyhow::Result<String> {
    let path = "jsonpath={range .items[*]}{.metadata.name} {.spec.holderIdentity} {.spec.acquireTime}\n{end}";
    let selector = format!("app.kubernetes.io/instance={RELEASE}");
    bed.kubectl(&["get", "leases", "--namespace", NAMESPACE, "--selector", &selector, "--output", path]).await
}

/// Sets the wall clock of the process this far from that of the host.
fn set_clock(process: i32, offset: SignedDuration) -> anyhow::Result<()> {
    signal(process, Signal::STOP)?;
    let done = replace(process, offset);
    signal(process, Signal::CONT)?;
    done.with_context(|| format!("cannot set the clock of process {process}"))
}

fn replace(process: i32, offset: SignedDuration) -> anyhow::Result<()> {
    let proc = PathBuf::from(format!("/proc/{process}"));
    let maps = fs::read_to_string(proc.join("maps"))?;
    let (begin, end) = vdso(&maps).context("the process has no vDSO")?;
    let memory = OpenOptions::new().read(true).write(true).open(proc.join("mem"))?;
    let mut image = vec![0; usize::try_from(end - begin)?];
    memory.read_exact_at(&mut image, begin)?;
    let at = symbol(&image, b"__vdso_clock_gettime").context("the vDSO has no clock_gettime")?;
    memory.write_all_at(&program(offset), begin + at)?;
    Ok(())
}

fn vdso(maps: &str) -> Option<(u64, u64)> {
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
    Some((u64::from_str_radix(begin, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// The value of a dynamic symbol in a 64-bit ELF image.
fn symbol(image: &[u8], name: &[u8]) -> Option<u64> {
    const DYNSYM: u64 = 11;
    let number = |at: u64, size: usize| {
        let at = usize::try_from(at).ok()?;
        let bytes = image.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let (sections, size, count) = (number(0x28, 8)?, number(0x3a, 2)?, number(0x3c, 2)?);
    let section = |index: u64| sections + index * size;
    let symbols = (0..count).map(section).find(|at| number(at + 4, 4) == Some(DYNSYM))?;
    let (first, length) = (number(symbols + 0x18, 8)?, number(symbols + 0x20, 8)?);
    let strings = number(section(number(symbols + 0x28, 4)?) + 0x18, 8)?;
    (first..first + length).step_by(24).find_map(|at| {
        let begin = usize::try_from(strings + number(at, 4)?).ok()?;
        let named = image.get(begin..)?.split(|byte| *byte == 0).next()? == name;
        named.then(|| number(at + 8, 8)).flatten()
    })
}

/// The compiled instructions of `int clock_gettime(clockid_t, struct timespec *)`. It asks the kernel, and for `CLOCK_REALTIME`, which is 0, it adds
/// the offset to the seconds.
fn program(offset: SignedDuration) -> Vec<u8> {
    let ask = [0xb8, 0xe4, 0, 0, 0, 0x0f, 0x05]; // mov eax, 228; syscall
    let if_realtime = [0x85, 0xff, 0x75, 0x0d, 0x48, 0xb9]; // test edi, edi; jne to ret; mov rcx, the offset
    let add = [0x48, 0x01, 0x0e, 0xc3]; // add [rsi], rcx; ret
    [&ask[..], &if_realtime, &offset.as_secs().to_le_bytes(), &add].concat()
}
