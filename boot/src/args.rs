//! The only reader of flags and environment.

use crate::dhcp::{Mode, Modes, Pool};
use crate::files::ProgramFile;
use crate::identity;
use crate::origin;
use clap::Parser;
use ipnet::Ipv4Net;
use planner::netboot::Programs;
use planner::workflow::references::{self, Rules};
use runtime::process::LogFormat;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Boots servers without a DPU from the network, and serves Tinkerbell's Workflows to their agents.
#[derive(Debug, Clone, Parser)]
#[command(name = "boot", version = runtime::version::VERSION)]
pub struct Args {
    /// How to reach the API server. Default: the pod's own service account.
    #[arg(long, env = "METALPLANE_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The namespace of Hardware, Templates and Workflows.
    #[arg(long, env = "METALPLANE_INVENTORY_NAMESPACE", default_value = "metalplane-inventory")]
    pub inventory_namespace: String,
    /// The namespace of the Secrets by which installed systems are told about themselves, and of nothing else.
    #[arg(long, env = "SEEDS_NAMESPACE", default_value = "metalplane-seeds")]
    pub seeds_namespace: String,

    /// This node's address on the provisioning network: where everything is served, and what DHCP and scripts name. Where there are
    /// several replicas: those of all their nodes, for example 10.88.0.1,10.88.0.2; the one that this node has is taken.
    #[arg(
        long = "address",
        env = "METALPLANE_BOOT_ADDRESS",
        value_name = "ADDRESS",
        value_delimiter = ',',
        required = true
    )]
    pub addresses: Vec<Ipv4Addr>,

    /// Which of --address this replica is, where its node has several of them.
    #[arg(long, env = "METALPLANE_BOOT_OWN_ADDRESS", value_name = "ADDRESS")]
    pub own_address: Option<Ipv4Addr>,

    /// The interface on which DHCP is served, for example eth1. Left out: DHCP is not served.
    #[arg(long, env = "METALPLANE_BOOT_INTERFACE", value_name = "NAME")]
    pub interface: Option<String>,

    /// How the interface's network is served, and relays' networks that --dhcp-subnet does not list. Reservation: addresses and boot
    /// programs of the Hardware. Proxy: boot programs alone, beside another DHCP server (port 4011 too). AutoProxy: the same, and of
    /// servers that no Hardware names. Off: not at all.
    #[arg(long = "dhcp", env = "METALPLANE_BOOT_DHCP", value_name = "MODE", default_value = "Reservation")]
    pub dhcp: Mode,

    /// How a network behind a relay is served, for example 10.1.0.0/24=Proxy. May be repeated; the smallest network counts.
    #[arg(
        long = "dhcp-subnet",
        env = "METALPLANE_BOOT_DHCP_SUBNETS",
        value_name = "SUBNET=MODE",
        value_delimiter = ',',
        value_parser = subnet
    )]
    pub dhcp_subnets: Vec<(Ipv4Net, Mode)>,

    /// Addresses for servers that have none in the inventory, in a network that is served as Reservation: those that no Hardware names
    /// boot with one, and Hardware without dhcp.ip. For example 10.88.0.200-10.88.0.239/24@10.88.0.1, the gateway being optional; not
    /// fewer than such servers are switched on in a day. May be repeated, one for each network.
    #[arg(
        long = "dhcp-pool",
        env = "METALPLANE_BOOT_DHCP_POOLS",
        value_name = "FIRST-LAST/PREFIX[@GATEWAY]",
        value_delimiter = ','
    )]
    pub dhcp_pools: Vec<Pool>,

    /// The port of scripts, programs and kernels.
    #[arg(long, env = "METALPLANE_BOOT_HTTP_PORT", value_name = "PORT", default_value_t = 7080)]
    pub http_port: u16,

    /// The port of Tinkerbell's agents.
    #[arg(long, env = "METALPLANE_BOOT_GRPC_PORT", value_name = "PORT", default_value_t = 42113)]
    pub grpc_port: u16,

    /// How agents are known: session, as Metalplane's installer, which redeems the token in the kernel arguments once, for a key of its
    /// own, and speaks TLS; bearer, by that token, as agents that others wrote; open, by their identifier alone, which anybody may send.
    #[arg(long, env = "METALPLANE_BOOT_AGENTS", value_enum, default_value_t = identity::Mode::Session)]
    pub agents: identity::Mode,

    /// The key of agents' tokens: a file with 32 bytes or more that nobody else can read. Needed with --agents=session and bearer.
    #[arg(long, env = "METALPLANE_BOOT_TOKEN_KEY", value_name = "FILE")]
    pub token_key: Option<PathBuf>,

    /// Where /healthz and /readyz are served.
    #[arg(long, env = "METALPLANE_BOOT_PROBES", value_name = "ADDRESS", default_value = "127.0.0.1:7081")]
    pub probes: SocketAddr,

    /// Where /metrics is served, for example 192.0.2.7:9767. Default: nowhere.
    #[arg(long, env = "METALPLANE_BOOT_METRICS", value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,

    /// The folder of kernels and initial RAM disks (vmlinuz-x86_64, initramfs-x86_64) and of ISO images.
    #[arg(long, env = "METALPLANE_BOOT_FILES", value_name = "DIR")]
    pub files: Option<PathBuf>,

    /// The ISO image of servers whose Hardware names none (isoboot.sourceISO), where --files has no file of the name that is asked for: an
    /// http or https URL. It is fetched by parts, and the server's kernel arguments are filled in on the way.
    #[arg(long, env = "METALPLANE_BOOT_ISO_URL", value_name = "URL", hide_env_values = true, value_parser = iso)]
    pub iso_url: Option<String>,

    /// The authorities that vouch for https servers of ISO images, in PEM, instead of the public ones. Read whenever an image is opened.
    #[arg(long, env = "METALPLANE_BOOT_ISO_CA_FILE", value_name = "FILE")]
    pub iso_ca_file: Option<PathBuf>,

    /// A boot program by the name that DHCP gives: iPXE as ipxe.efi for UEFI and undionly.kpxe for BIOS, or the installer as a unified
    /// kernel image. May be repeated.
    #[arg(
        long = "program",
        env = "METALPLANE_BOOT_PROGRAMS",
        value_name = "NAME=SHA256@FILE",
        value_delimiter = ',',
        value_parser = program
    )]
    pub programs: Vec<ProgramFile>,

    /// Another program for an architecture of DHCP's option 93, for example 7=snponly.efi. May be repeated.
    #[arg(
        long = "architecture",
        env = "METALPLANE_BOOT_ARCHITECTURES",
        value_name = "NUMBER=NAME",
        value_delimiter = ',',
        value_parser = architecture
    )]
    pub architectures: Vec<(u16, String)>,

    /// The user class of iPXE programs that cannot say that they fetch by HTTP, and want the script.
    #[arg(long, env = "METALPLANE_BOOT_USER_CLASS", value_name = "TEXT")]
    pub user_class: Option<String>,

    /// Told to servers as their log server, and to the kernel. An address of --address: each replica tells its own, and what servers of
    /// the inventory send there (UDP 514) is in its log, with the name of the Hardware.
    #[arg(long, env = "METALPLANE_BOOT_SYSLOG", value_name = "ADDRESS")]
    pub syslog: Option<Ipv4Addr>,

    /// A further argument of the kernel, for example console=ttyS0. May be repeated.
    #[arg(
        long = "kernel-argument",
        env = "METALPLANE_BOOT_KERNEL_ARGUMENTS",
        value_name = "TEXT",
        value_delimiter = ' ',
        value_parser = argument
    )]
    pub kernel_arguments: Vec<String>,

    /// Which objects that Hardware refers to (spec.references) templates may read as .references: a rule as Tinkerbell's, a pattern of
    /// Quamina's, for example {"reference": {"resource": ["lvms"]}}. May be repeated; several may be joined with |. Nothing is allowed
    /// by default, and a Secret only by a rule that has "secrets" in reference.resource. What is allowed is read with the rights of this
    /// service's account.
    #[arg(
        long = "reference-allow",
        env = "METALPLANE_BOOT_REFERENCE_ALLOW",
        value_name = "RULE",
        value_delimiter = '|',
        value_parser = rule
    )]
    pub reference_allow: Vec<String>,

    /// Which of them they may not read, unless --reference-allow says so. Default: all. As with Tinkerbell, a rule of one's own takes the
    /// place of that: what no rule denies is allowed then.
    #[arg(
        long = "reference-deny",
        env = "METALPLANE_BOOT_REFERENCE_DENY",
        value_name = "RULE",
        value_delimiter = '|',
        value_parser = rule
    )]
    pub reference_deny: Vec<String>,

    #[arg(long, env = "METALPLANE_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// What to log: a level, or directives such as boot=debug,kube=warn.
    #[arg(long, env = "RUST_LOG", default_value = "info,kube_client::client::builder=off")]
    pub log_filter: String,
}

impl Args {
    pub(crate) fn modes(&self) -> Modes {
        Modes { interface: self.dhcp, subnets: self.dhcp_subnets.clone() }
    }

    pub(crate) fn rules(&self) -> Rules {
        Rules::new(self.reference_allow.clone(), self.reference_deny.clone(), self.seeds_namespace.clone())
    }

    pub(crate) fn origins(&self) -> origin::Config {
        origin::Config { url: self.iso_url.clone(), ca_file: self.iso_ca_file.clone() }
    }

    pub(crate) fn choice(&self) -> Programs {
        Programs { by_arch: self.architectures.iter().cloned().collect(), user_class: self.user_class.clone() }
    }
}

fn iso(text: &str) -> Result<String, String> {
    origin::check(text).map(|()| text.to_owned())
}

fn subnet(text: &str) -> Result<(Ipv4Net, Mode), String> {
    let (net, mode) = text.split_once('=').ok_or("write SUBNET=MODE, for example 10.1.0.0/24=Proxy")?;
    let net: Ipv4Net = net.parse().map_err(|_| format!("{net:?} is no subnet: write for example 10.1.0.0/24=Proxy"))?;
    if net != net.trunc() {
        return Err(format!("{net} has bits behind its prefix: write {}", net.trunc()));
    }
    Ok((net, mode.parse()?))
}

fn program(text: &str) -> Result<ProgramFile, String> {
    let read = || {
        let (name, rest) = text.split_once('=')?;
        let (checksum, path) = rest.split_once('@')?;
        let whole = !name.is_empty()
            && !name.contains('/')
            && checksum.len() == 64
            && checksum.bytes().all(|byte| byte.is_ascii_hexdigit())
            && path.starts_with('/');
        let file = || ProgramFile { name: name.into(), checksum: checksum.to_ascii_lowercase(), path: path.into() };
        whole.then(file)
    };
    read().ok_or_else(|| "write NAME=SHA256@/absolute/path, the checksum in 64 hexadecimal digits".to_owned())
}

fn architecture(text: &str) -> Result<(u16, String), String> {
    let read = || {
        let (number, name) = text.split_once('=')?;
        Some((number.parse().ok()?, name.to_owned())).filter(|(_, name)| !name.is_empty() && !name.contains('/'))
    };
    read().ok_or_else(|| "write NUMBER=NAME, the number as in DHCP's option 93".to_owned())
}

fn rule(text: &str) -> Result<String, String> {
    references::check(text).map(|()| text.to_owned())
}

fn argument(text: &str) -> Result<String, String> {
    let breaks = text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) || text.contains("${");
    if breaks { Err("write one word, without ${".to_owned()) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_say_what_to_write() {
        let sum = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
        assert!(program(&format!("ipxe.efi={sum}@/a/b")).is_ok());
        for bad in ["", "a=b@/c", &format!("a={sum}@c"), &format!("a/b={sum}@/c")] {
            assert!(program(bad).is_err(), "{bad}");
        }
        assert_eq!(subnet("10.1.0.0/24=Off").map(|(net, mode)| (net.prefix_len(), mode)), Ok((24, Mode::Off)));
        for (bad, said) in [
            ("x", "SUBNET=MODE"),
            ("10.1/24=Off", "no subnet"),
            ("10.1.0.7/24=Off", "10.1.0.0/24"),
            ("10.1.0.0/24=off", "AutoProxy"),
        ] {
            assert!(subnet(bad).expect_err(bad).contains(said), "{bad}");
        }
        assert!("10.1.0.200-10.1.0.209/24".parse::<Pool>().is_ok());
        for (bad, said) in [
            ("10.1.0.200", "FIRST-LAST/PREFIX"),
            ("10.1.0.209-10.1.0.200/24", "in their order"),
            ("10.1.0.0-10.1.0.9/24", "not hosts"),
            ("10.1.0.200-10.1.1.9/24", "not hosts"),
            ("10.1.0.200-10.1.0.209/24@10.2.0.1", "not hosts"),
        ] {
            assert!(bad.parse::<Pool>().expect_err(bad).contains(said), "{bad}");
        }
        assert_eq!(architecture("7=a.efi"), Ok((7, "a.efi".to_owned())));
        assert!(architecture("x=a").is_err() && architecture("7=").is_err());
        assert!(iso("https://x/y.iso?sig=1").is_ok() && iso("x/y.iso").is_err() && iso("file:///y.iso").is_err());
        assert!(argument("a=b").is_ok() && argument("a b").is_err() && argument("").is_err());
    }
}
