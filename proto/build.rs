//! Generates the gRPC code. protox parses the .proto files in Rust, so that a build needs no `protoc`.

const FILES: [&str; 7] = [
    "csi.proto",
    "pluginregistration.proto",
    "agent.proto",
    "interfaces.proto",
    "installer.proto",
    "tink.proto",
    "tink_older.proto",
];

fn main() {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"]).expect("the .proto files in proto/proto parse");
    tonic_prost_build::configure().compile_fds(descriptors).expect("the parsed .proto files become Rust code");
}
