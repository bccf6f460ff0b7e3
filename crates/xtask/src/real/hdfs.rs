//! HDFS: the jars of its small cluster, fetched once, and the program that starts it from its one
//! source file.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What Maven is to fetch.
const WANTED: &str = include_str!("hdfs.xml");
/// What Java runs, as a single source file.
const SOURCE: &str = include_str!("MiniCluster.java");
const SOURCE_NAME: &str = "MiniCluster.java";

/// The directory that belongs to the tests' user.
pub const DIRECTORY: &str = "/data";
/// Whom the cluster takes us for.
const USER: &str = "tombolo";
/// As many as there are replicas of a block.
const DATANODES: u32 = 3;

fn directory(cache: &Path) -> PathBuf {
    cache.join("hdfs")
}

/// The jar that is there when all are: it is the last that is copied to its place.
pub fn program(cache: &Path) -> PathBuf {
    directory(cache).join("lib/hadoop-client-minicluster-3.4.1.jar")
}

/// Whether there is a Java that starts source files.
pub fn has_java() -> Result<(), String> {
    match Command::new("java").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("java ended with {status}; 11 or later is needed")),
        Err(error) => Err(format!("java cannot be started: {error}")),
    }
}

/// What fetches the jars. They get their place at once, so that half of them never looks like all.
pub fn fetch(cache: &Path) -> Result<Command, String> {
    let directory = directory(cache);
    let failed = |error: std::io::Error| format!("making {}: {error}", directory.display());
    std::fs::create_dir_all(&directory).map_err(failed)?;
    std::fs::write(directory.join("pom.xml"), WANTED).map_err(failed)?;
    let mut shell = Command::new("sh");
    shell
        .arg("-ec")
        .arg(
            "rm -rf part; mvn -q -B dependency:copy-dependencies -DincludeScope=runtime \
            -DoutputDirectory=part; rm -rf lib; mv part lib",
        )
        .current_dir(directory);
    Ok(shell)
}

/// What starts a cluster on a port, its data under `data`. It ends when its standard input does.
pub fn command(program: &Path, directory: &Path, data: &Path, port: u16) -> Result<Command, String> {
    let jars = program.with_file_name("*");
    let source = directory.join(SOURCE_NAME);
    std::fs::write(&source, SOURCE).map_err(|error| format!("making {}: {error}", source.display()))?;
    let mut java = Command::new("java");
    java.args(["-Xmx768m", "-cp"])
        .arg(jars)
        .arg(source)
        .arg(data)
        .args([port.to_string(), DATANODES.to_string()])
        .arg(USER);
    java.env_remove("HADOOP_CONF_DIR").env_remove("HADOOP_USER_NAME").current_dir(directory);
    Ok(java)
}
