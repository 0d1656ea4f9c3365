//! What every attachment of a machine has.

use crate::machine::named::own_labels;
use crate::machine::observed::Observed;
use api::attachment::{DiskAttachmentSpec, OwnerReference};
use api::{DiskAttachment, labels, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub(super) fn owner(o: &Observed) -> OwnerReference {
    OwnerReference {
        kind: "BareMetalMachine".to_owned(),
        namespace: Some(o.namespace().to_owned()),
        name: o.name().to_owned(),
        uid: o.uid().to_owned(),
    }
}

pub(super) fn disk_attachment(o: &Observed, namespace: &str, part: &str, spec: DiskAttachmentSpec) -> DiskAttachment {
    let mut attachment = DiskAttachment::new(&names::attachment(o.uid(), o.name(), part), spec);
    own_attachment(o, namespace, &mut attachment.metadata);
    attachment
}

pub(super) fn own_attachment(o: &Observed, namespace: &str, meta: &mut ObjectMeta) {
    meta.namespace = Some(namespace.to_owned());
    meta.labels = Some(own_labels(&o.machine));
    meta.finalizers = Some(vec![labels::FINALIZER_EXPOSED.to_owned()]);
}
