//! The image of a medium, fetched by the BMC itself.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use reqwest::{Client, Response, StatusCode};
use tokio::io::AsyncWriteExt;
use url::Url;

/// What the BMC has room for.
const LARGEST: u64 = 1 << 30;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// The server says nothing for so long.
const STALL: Duration = Duration::from_secs(30);

/// Where an image is, and who asks for it.
pub struct Image {
    url: Url,
    /// With the password.
    account: Option<(String, String)>,
}

/// Why there is no image.
pub enum Missed {
    /// Nobody answers, or not all of it came.
    Unreachable,
    Answered(StatusCode),
    TooLarge,
    /// The BMC's own fault.
    Failed(anyhow::Error),
}

impl Image {
    /// `None`: no URL that this BMC can fetch.
    pub fn parse(url: &str, account: Option<(String, String)>) -> Option<Image> {
        let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
        Some(Image { url, account })
    }

    /// By Redfish's word for it.
    pub fn protocol(&self) -> String {
        self.url.scheme().to_ascii_uppercase()
    }

    /// Without what is nobody's to read: the account, and a query, which may be a signature.
    pub fn shown(&self) -> String {
        let mut url = self.url.clone();
        // They fail for an URL that can have no account, and so has none.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        url.to_string()
    }

    pub async fn fetch(&self, to: &Path) -> Result<(), Missed> {
        let response = self.ask().await?;
        if !response.status().is_success() {
            return Err(Missed::Answered(response.status()));
        }
        keep(response, to).await
    }

    async fn ask(&self) -> Result<Response, Missed> {
        // `VerifyCertificate` is false by default (DSP0268, VirtualMedia), and no BMC asks a proxy of our environment.
        let client = Client::builder()
            .no_proxy()
            .danger_accept_invalid_certs(true)
            .connect_timeout(CONNECT_WITHIN)
            .read_timeout(STALL)
            .build()
            .context("make an HTTP client")
            .map_err(Missed::Failed)?;
        let mut request = client.get(self.url.clone());
        if let Some((user, password)) = &self.account {
            request = request.basic_auth(user, Some(password));
        }
        request.send().await.map_err(|_| Missed::Unreachable)
    }
}

async fn keep(mut response: Response, to: &Path) -> Result<(), Missed> {
    let failed = |what: &str, error: std::io::Error| {
        Missed::Failed(anyhow::Error::new(error).context(format!("{what} {}", to.display())))
    };
    let mut file = tokio::fs::File::create(to).await.map_err(|error| failed("create", error))?;
    let mut length = 0;
    while let Some(part) = response.chunk().await.map_err(|_| Missed::Unreachable)? {
        length += part.len() as u64;
        if length > LARGEST {
            return Err(Missed::TooLarge);
        }
        file.write_all(&part).await.map_err(|error| failed("write", error))?;
    }
    file.flush().await.map_err(|error| failed("write", error))
}

#[cfg(test)]
mod tests {
    use super::Image;

    #[test]
    fn neither_account_nor_query_is_shown() {
        let image =
            Image::parse("https://ann:pa%20ss@nas.example:8443/a/b.iso?sig=c2VjcmV0#x", None).expect("an image");
        assert_eq!(image.shown(), "https://nas.example:8443/a/b.iso");
        assert_eq!(image.protocol(), "HTTPS");
        for other in ["nfs://nas/a.iso", "a.iso", "", "file:///etc/passwd"] {
            assert!(Image::parse(other, None).is_none(), "{other}");
        }
    }
}
