//! Declares the root type of one of Tinkerbell's kinds.

/// `kind!(/// doc  Name, group: "…", plural: "…", short: […], columns: [{…}], spec: Spec, status: Status,
/// moved: whether clusterctl takes the objects along)`
macro_rules! kind {
    (
        $(#[$doc:meta])*
        $name:ident, group: $group:literal, plural: $plural:literal, short: [$($short:literal),*],
        columns: $columns:tt, spec: $spec:ty, status: $status:ty, moved: $moved:literal $(,)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        pub struct $name {
            #[serde(default)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            #[serde(default)]
            pub spec: $spec,
            #[serde(default)]
            pub status: Option<$status>,
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let fields = 4 + usize::from(self.status.is_some());
                let mut object = serializer.serialize_struct(stringify!($name), fields)?;
                object.serialize_field("apiVersion", concat!($group, "/v1alpha1"))?;
                object.serialize_field("kind", stringify!($name))?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                if let Some(status) = &self.status {
                    object.serialize_field("status", status)?;
                }
                object.end()
            }
        }

        impl kube_core::Resource for $name {
            type DynamicType = ();
            type Scope = kube_core::NamespaceResourceScope;

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                stringify!($name).into()
            }
            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                "v1alpha1".into()
            }
            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }

        impl kube_core::CustomResourceExt for $name {
            fn crd() -> k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition {
                $crate::tinkerbell::schema::definition::<$spec, $status>(
                    &<Self as kube_core::CustomResourceExt>::api_resource(),
                    Self::shortnames(),
                    serde_json::json!($columns),
                    $moved,
                )
            }
            fn crd_name() -> &'static str {
                concat!($plural, ".", $group)
            }
            fn api_resource() -> kube_core::dynamic::ApiResource {
                kube_core::dynamic::ApiResource::erase::<Self>(&())
            }
            fn shortnames() -> &'static [&'static str] {
                &[$($short),*]
            }
        }
    };
}
