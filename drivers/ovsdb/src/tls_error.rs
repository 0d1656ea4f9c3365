//! What went wrong on a TLS connection, in words that say which certificate, whose, and what is the matter with it.
//!
//! With TLS 1.3 a server's opinion of our certificate comes as an alert (RFC 8446 section 6.2) after the handshake, when something
//! is read.

use crate::tls::TlsFiles;
use jiff::Timestamp;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error as TlsError};
use std::io;

pub(crate) fn explain(error: &io::Error, files: &TlsFiles) -> String {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => "closed by the server; does it expect TLS there (pssl:)?".to_owned(),
            _ => error.to_string(),
        };
    };
    match tls {
        TlsError::InvalidCertificate(cause) => format!("the server's certificate {}", of_server(cause, files)),
        TlsError::AlertReceived(alert) => of_alert(*alert, files),
        TlsError::InvalidMessage(_) => format!("the server answers no TLS: does it expect TLS there (pssl:)? ({tls})"),
        other => format!("TLS: {other}"),
    }
}

fn of_server(cause: &CertificateError, files: &TlsFiles) -> String {
    let authority = files.authority.display();
    match cause {
        CertificateError::ExpiredContext { not_after, .. } => format!("has expired, at {}", date(*not_after)),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("is not valid before {}: compare the clocks", date(*not_before))
        }
        CertificateError::UnknownIssuer => format!("is signed by no authority of {authority}"),
        CertificateError::BadSignature => {
            format!("is signed by an authority that has the name of the one in {authority}, and another key")
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let presented = if presented.is_empty() { "nothing".to_owned() } else { presented.join(", ") };
            format!("names {presented} in subjectAltName, and not {}", expected.to_str())
        }
        CertificateError::InvalidPurposeContext { .. } => {
            "is for no server: its extended key usage lacks serverAuth".to_owned()
        }
        other => format!("will not do: {other}"),
    }
}

fn of_alert(alert: AlertDescription, files: &TlsFiles) -> String {
    let certificate = files.certificate.display();
    match alert {
        AlertDescription::CertificateExpired => format!("the server refuses {certificate}: it has expired"),
        AlertDescription::CertificateRevoked => format!("the server refuses {certificate}: it is revoked"),
        AlertDescription::UnknownCA => format!("the server does not know the authority that signed {certificate}"),
        AlertDescription::UnsupportedCertificate => {
            format!("the server refuses {certificate}: it is for no client (its extended key usage lacks clientAuth)")
        }
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown | AlertDescription::DecryptError => {
            format!("the server refuses {certificate} ({alert:?})")
        }
        AlertDescription::CertificateRequired => format!("the server did not get {certificate} ({alert:?})"),
        AlertDescription::ProtocolVersion => "the server has neither TLS 1.2 nor 1.3".to_owned(),
        AlertDescription::HandshakeFailure => {
            format!("the server ends the handshake: no cipher in common, or it will not have {certificate} ({alert:?})")
        }
        other => format!("the server ends TLS with the alert {other:?}"),
    }
}

fn date(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map_or_else(|_| format!("{seconds} s after 1970"), |time| time.to_string())
}
