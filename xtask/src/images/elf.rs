//! Checks that a program can run in an empty image: it must be built for the right architecture, and without a dynamic linker.

use anyhow::{Context, bail};
use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, elf};

use super::arch::Arch;

pub(crate) fn check(binary: &[u8], arch: Arch) -> anyhow::Result<()> {
    let target = arch.target();
    let wrong = || format!("not a 64-bit Linux program, or truncated; build it for {target}");
    let header = FileHeader64::<Endianness>::parse(binary).with_context(wrong)?;
    let endian = header.endian().with_context(wrong)?;
    let machine = header.e_machine(endian);
    let expected = match arch {
        Arch::Amd64 => elf::EM_X86_64,
        Arch::Arm64 => elf::EM_AARCH64,
    };
    if machine != expected {
        bail!("built for another architecture than {arch} (ELF type {machine}); build it for {target}");
    }
    let segments = header.program_headers(endian, binary).with_context(wrong)?;
    // This program header names a dynamic linker.
    if segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP) {
        bail!(
            "dynamically linked, so it cannot start in an image without a libc; build it with \
            RUSTFLAGS='-C target-feature=+crt-static' and --target {target}"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Arch, check};

    #[test]
    fn only_static_programs_of_the_architecture_pass() {
        // A program of this system has a dynamic linker.
        let here = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let this = Arch::of_this_machine().unwrap();
        let other = if this == Arch::Amd64 { Arch::Arm64 } else { Arch::Amd64 };
        for (binary, arch, reason) in [
            (&here[..], this, "crt-static"),
            (&here[..], other, "built for another architecture"),
            (b"#!/bin/sh\n", this, "not a 64-bit Linux program"),
            (&here[..70], this, "truncated"),
        ] {
            let error = check(binary, arch).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        // The same header, in which a segment of another kind replaces the dynamic linker.
        let mut fixed = here[..64].to_vec();
        fixed[54..58].copy_from_slice(&[56, 0, 0, 0]);
        check(&fixed, this).unwrap();
    }
}
