//! What a client is given to boot: by what asks (firmware or iPXE) and for which processor (option 93).

use std::collections::BTreeMap;
use std::fmt;

/// Who asks, from the DHCP packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Client {
    /// Option 93.
    pub arch: Option<u16>,
    /// Option 77 as text.
    pub user_class: Option<String>,
    /// Option 175 says that iPXE can fetch by HTTP.
    pub ipxe_http: bool,
    pub asked: Asked,
}

impl Client {
    pub fn is_ipxe(&self) -> bool {
        self.ipxe_http || matches!(self.user_class.as_deref(), Some("iPXE" | "Tinkerbell"))
    }

    fn program(&self) -> &'static str {
        match self.asked {
            _ if self.is_ipxe() => "iPXE",
            Asked::UefiHttp => "HTTP boot",
            Asked::Pxe | Asked::AddressOnly => "PXE",
        }
    }
}

/// As a person names it; the numbers are those of RFC 4578 and of its registry.
impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = match self.arch {
            Some(0) => "BIOS",
            Some(6 | 15) => "UEFI (x86, 32 bits)",
            Some(7 | 9 | 16) => "UEFI (x86-64)",
            Some(10 | 18) => "UEFI (ARM, 32 bits)",
            Some(11 | 19) => "UEFI (ARM64)",
            Some(other) => return write!(f, "{} of architecture {other}", self.program()),
            None => return f.write_str(self.program()),
        };
        write!(f, "{} of {machine}", self.program())
    }
}

/// Option 60.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Asked {
    /// It does not boot from the network.
    #[default]
    AddressOnly,
    Pxe,
    UefiHttp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootFile {
    /// The iPXE script of this server, by HTTP.
    Script,
    /// A program by its name, by HTTP.
    HttpProgram(String),
    /// A program by its name, by TFTP.
    TftpProgram { name: String, by_url: bool },
}

/// Programs that are configured, by their names, and which architecture gets which.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Programs {
    /// By option 93; over upstream's table.
    pub by_arch: BTreeMap<u16, String>,
    /// The user class of iPXE programs that want the script, beside upstream's `Tinkerbell`.
    pub user_class: Option<String>,
}

/// Upstream's table.
fn program(arch: u16) -> Option<&'static str> {
    Some(match arch {
        0..=5 | 20 => "undionly.kpxe",
        6..=9 | 15 | 16 => "ipxe.efi",
        10 | 11 | 18 | 19 | 41 => "snp-arm64.efi",
        _ => return None,
    })
}

/// What the client is told to boot; `None`: it does not ask, or nothing is known for its processor. `own`: the program that its
/// Hardware names.
///
/// Every iPXE that can fetch by HTTP gets the script, whatever its user class: a stock program would otherwise be given itself,
/// again and again.
pub fn boot_file(client: &Client, programs: &Programs, own: Option<&str>) -> Option<BootFile> {
    let arch = client.arch?;
    let class = client.user_class.as_deref();
    let name = || {
        let own = own.filter(|name| !name.is_empty()).map(str::to_owned);
        own.or_else(|| programs.by_arch.get(&arch).cloned()).or_else(|| program(arch).map(str::to_owned))
    };
    let wants_script =
        class.is_some_and(|class| class == "Tinkerbell" || Some(class) == programs.user_class.as_deref());
    match client.asked {
        Asked::AddressOnly => None,
        _ if wants_script || client.ipxe_http => Some(BootFile::Script),
        Asked::UefiHttp => name().map(BootFile::HttpProgram),
        Asked::Pxe => name().map(|name| BootFile::TftpProgram { name, by_url: class == Some("iPXE") }),
    }
}
