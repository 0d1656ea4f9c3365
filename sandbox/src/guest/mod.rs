//! Images that virtual servers boot.

use anyhow::Result;

use crate::args::GuestImage;

/// Builds the image and prints its path.
pub async fn run(args: &GuestImage) -> Result<()> {
    anyhow::bail!("guest image {}: not built in", args.kind)
}
