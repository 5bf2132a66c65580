//! Checks that a program can run in an empty image: it must be built for the right architecture, and without a dynamic linker.

use anyhow::{Context, bail};

use super::arch::Arch;

/// The program header that names a dynamic linker.
const PT_INTERP: u32 = 3;

pub(crate) fn check(binary: &[u8], arch: Arch) -> anyhow::Result<()> {
    // The class is 64 bits, the byte order little-endian.
    if !binary.starts_with(b"\x7fELF\x02\x01") {
        bail!("not a 64-bit Linux program; build it for {}", arch.target());
    }
    let cut = "the file is truncated; build it again";
    let machine = u16::from_le_bytes(at(binary, 18).context(cut)?);
    if machine != arch.machine() {
        bail!(
            "built for another machine than {arch} (ELF machine {machine}); build it for {}",
            arch.target()
        );
    }
    let table = u64::from_le_bytes(at(binary, 32).context(cut)?);
    let size = u64::from(u16::from_le_bytes(at(binary, 54).context(cut)?));
    let entries = u64::from(u16::from_le_bytes(at(binary, 56).context(cut)?));
    for entry in 0..entries {
        let place = usize::try_from(table.saturating_add(entry * size)).context(cut)?;
        if u32::from_le_bytes(at(binary, place).context(cut)?) == PT_INTERP {
            bail!(
                "dynamically linked, so it cannot start in an image without a libc; build it with \
                RUSTFLAGS='-C target-feature=+crt-static' and --target {}",
                arch.target()
            );
        }
    }
    Ok(())
}

fn at<const N: usize>(bytes: &[u8], place: usize) -> Option<[u8; N]> {
    bytes.get(place..place.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::{Arch, PT_INTERP, check};

    /// A binary with one program header.
    fn binary(arch: Arch, header: u32) -> Vec<u8> {
        let mut elf = b"\x7fELF\x02\x01".to_vec();
        elf.resize(64, 0);
        elf[18..20].copy_from_slice(&arch.machine().to_le_bytes());
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 1;
        elf.extend(header.to_le_bytes());
        elf
    }

    #[test]
    fn only_static_binaries_of_the_machine_pass() {
        check(&binary(Arch::Arm64, 1), Arch::Arm64).unwrap();
        for (elf, told) in [
            (binary(Arch::Amd64, 1), "build it for aarch64-unknown-linux-gnu"),
            (binary(Arch::Arm64, PT_INTERP), "crt-static"),
            (b"#!/bin/sh\n".to_vec(), "not a 64-bit Linux program"),
            (binary(Arch::Arm64, 1)[..60].to_vec(), "truncated"),
        ] {
            let error = check(&elf, Arch::Arm64).unwrap_err();
            assert!(error.to_string().contains(told), "{error}");
        }
    }

    #[test]
    fn a_program_of_this_system_is_not_static() {
        let here = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let error = check(&here, Arch::of_this_machine().unwrap()).unwrap_err();
        assert!(error.to_string().contains("crt-static"), "{error}");
    }
}
