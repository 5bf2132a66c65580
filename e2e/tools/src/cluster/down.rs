//! Removes everything: processes, namespaces, links, mounts, cgroups, files. Also works after a crash of `up`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cluster::layout::{HOME_FILE, Layout, NAMESPACES, NODES_MAX, NetworkNamespace, Node};
use crate::cluster::process::{kill_all, known, stop};
use crate::cluster::run::run_words;
use crate::cluster::wait::say;
use crate::cluster::{needs, network, sysctls};

const CGROUP: &str = "k8s.io";

/// Ends all servers of the cluster and all other processes in its namespaces.
pub async fn down(layout: &Layout) -> anyhow::Result<()> {
    needs::root()?;
    let layout = &layout.of_what_runs();
    let names = known(layout);
    // Kill the kubelets first, because they would restart the containers.
    for name in names.iter().filter(|name| name.ends_with("kubelet")) {
        stop(layout, name).await?;
    }
    let groups = cgroups(layout, &mounts()?);
    kill_all("all containers have ended", || members(&groups)).await?;
    // The API server ends before etcd, and the processes that keep the mounts end last.
    let last = |name: &&String| name.ends_with("etcd") || name.ends_with("mounts");
    for name in names.iter().filter(|name| !last(name)).chain(names.iter().filter(last)) {
        stop(layout, name).await?;
    }
    // The remaining processes are containerd shims, and processes that a crash left without a PID file.
    kill_all("no process runs in the namespaces", || {
        NetworkNamespace::all().flat_map(network::processes).collect()
    })
    .await?;
    for place in NetworkNamespace::all() {
        network::remove(place)?;
    }
    unmount(&layout.home)?;
    for group in groups.iter().filter(|group| group.is_dir()) {
        remove_group(group).with_context(|| format!("cannot remove {}", group.display()))?;
    }
    for group in hierarchies(&mounts()?).iter().map(|root| root.join(CGROUP)) {
        // Other containerd processes on the host also use this cgroup. The kernel refuses to remove the cgroup while it contains
        // containers.
        fs::remove_dir(group).ok();
    }
    remove_dirs(layout);
    sysctls::put_back(layout);
    if layout.home.exists() {
        fs::remove_dir_all(&layout.home)
            .with_context(|| format!("cannot remove {}", layout.home.display()))?;
    }
    fs::remove_file(HOME_FILE).ok();
    say("The cluster is stopped and removed");
    Ok(())
}

/// Removes the directories of the host that `up` created, if they are empty. Other programs may use a directory that is not empty.
fn remove_dirs(layout: &Layout) {
    for dir in fs::read_to_string(layout.made_dirs()).unwrap_or_default().lines() {
        // `ip netns` makes its folder a mount point.
        if dir == NAMESPACES && fs::read_dir(dir).is_ok_and(|mut inside| inside.next().is_none()) {
            run_words(&format!("umount {dir}")).ok();
        }
        fs::remove_dir(dir).ok();
    }
}

fn mounts() -> anyhow::Result<String> {
    fs::read_to_string("/proc/self/mounts").context("cannot read the mounts")
}

/// Removes mounts below the folder. The host's own mount namespace should have no such mounts; the mount namespaces of the nodes end with
/// their processes.
fn unmount(home: &Path) -> anyhow::Result<()> {
    for point in below(&mounts()?, home).iter().rev() {
        run_words(&format!("umount --lazy {point}"))?;
    }
    Ok(())
}

/// Returns the mount points below a folder, in the order in which they were mounted.
fn below<'a>(mounts: &'a str, home: &Path) -> Vec<&'a str> {
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    points.filter(|point| Path::new(point).starts_with(home)).collect()
}

/// Returns the cgroup of each container that containerd knows on a node, in each hierarchy; cgroup v1 has several. containerd chooses these
/// cgroups, because the kubelet creates none itself.
fn cgroups(layout: &Layout, mounts: &str) -> Vec<PathBuf> {
    let ids: Vec<_> = Node::up_to(NODES_MAX).flat_map(|node| children(&layout.containers(node))).collect();
    let ids = ids.iter().filter_map(|path| path.file_name());
    let hierarchies = hierarchies(mounts);
    ids.flat_map(|id| hierarchies.iter().map(move |root| root.join(CGROUP).join(id))).collect()
}

fn hierarchies(mounts: &str) -> Vec<PathBuf> {
    let point = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind) = (fields.next()?, fields.next()?);
        matches!(kind, "cgroup" | "cgroup2").then(|| PathBuf::from(point))
    };
    mounts.lines().filter_map(point).collect()
}

/// Returns all processes of these cgroups and of the cgroups below them.
fn members(groups: &[PathBuf]) -> Vec<i32> {
    let mut ids = Vec::new();
    for group in groups {
        let listed = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        ids.extend(listed.lines().filter_map(|line| line.parse::<i32>().ok()));
        ids.extend(members(&children(group)));
    }
    ids
}

fn children(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_dir()).collect()
}

/// Removes cgroup directories. The kernel removes the files in a cgroup together with its directory.
fn remove_group(group: &Path) -> std::io::Result<()> {
    children(group).iter().try_for_each(|child| remove_group(child))?;
    fs::remove_dir(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                          cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                          cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                          tmpfs /c/node-1/a tmpfs rw 0 0\n\
                          tmpfs /c/node-1/a/b tmpfs rw 0 0\n\
                          tmpfs /cc tmpfs rw 0 0\n";

    #[test]
    fn only_mounts_below_the_folder_are_unmounted() {
        assert_eq!(below(MOUNTS, Path::new("/c")), ["/c/node-1/a", "/c/node-1/a/b"]);
    }

    #[test]
    fn both_cgroup_versions_are_found() {
        let found = hierarchies(MOUNTS);
        assert_eq!(found, ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"].map(PathBuf::from));
    }

    #[test]
    fn each_container_has_a_cgroup_in_each_hierarchy() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout { home: dir.path().to_path_buf() };
        fs::create_dir_all(layout.containers(Node(2)).join("abc")).unwrap();
        let groups = cgroups(&layout, MOUNTS);
        assert_eq!(
            groups,
            ["/sys/fs/cgroup/cpu/k8s.io/abc", "/sys/fs/cgroup/unified/k8s.io/abc"].map(PathBuf::from)
        );
    }

    #[test]
    fn processes_of_nested_groups_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("node-1").join("pod");
        fs::create_dir_all(&inner).unwrap();
        fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        fs::write(inner.join("cgroup.procs"), "12\n13\n").unwrap();
        assert_eq!(members(&[dir.path().to_path_buf()]), [12, 13]);
    }
}
