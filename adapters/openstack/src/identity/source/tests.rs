//! These tests check the file clouds.yaml, the selection of the cloud in it, and the file with secrets.

use secrecy::ExposeSecret as _;
use tempfile::TempDir;

use super::*;

const CLOUDS: &str = "
clouds:
  prod:
    auth: &auth
      auth_url: https://cloud.example:5000/v3
      username: demo
      user_domain_name: Default
      project_id: p1
    region_name: north
  test:
    auth: { <<: *auth, password: of the test }
    region_name: south
";
const SECURE: &str = "
clouds:
  prod:
    auth: { password: from beside }
";

struct Bed(TempDir);

impl Bed {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().expect("a folder");
        for (name, text) in files {
            fs::write(dir.path().join(name), text).expect("a written file");
        }
        Self(dir)
    }

    fn clouds(&self) -> PathBuf {
        self.0.path().join("clouds.yaml")
    }

    fn source(&self, cloud: Option<&str>) -> Source {
        Source::find(cloud, Some(&self.clouds()), &Environment::default()).expect("is named")
    }

    fn read(&self, cloud: Option<&str>) -> Result<Cloud, String> {
        self.source(cloud).read(&Given::default())
    }
}

fn secret(cloud: &Cloud) -> &str {
    cloud.credentials.secret().expose_secret()
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn clouds_yaml_and_secure_yaml_are_merged() {
    let bed = Bed::new(&[("clouds.yaml", CLOUDS), ("secure.yaml", SECURE)]);
    let prod = bed.read(Some("prod")).expect("good");
    assert_eq!((prod.region.as_str(), secret(&prod)), ("north", "from beside"));
    let test = bed.read(Some("test")).expect("good");
    assert_eq!((test.region.as_str(), secret(&test)), ("south", "of the test"));
}

#[test]
fn new_credentials_are_read_from_the_secrets_file() {
    let both = Bed::new(&[("clouds.yaml", CLOUDS), ("secure.yaml", SECURE)]);
    let source = both.source(Some("prod"));
    assert_eq!(source.followed(), Some(both.clouds().with_file_name("secure.yaml")));
    let newer = source.read_with(SECURE.replace("from beside", "newer").as_bytes(), &Given::default());
    assert_eq!(secret(&newer.expect("good")), "newer");

    let one = Bed::new(&[("clouds.yaml", CLOUDS)]);
    let source = one.source(Some("test"));
    assert_eq!(source.followed(), Some(one.clouds()));
    let newer = source.read_with(CLOUDS.replace("of the test", "newer").as_bytes(), &Given::default());
    assert_eq!(secret(&newer.expect("good")), "newer");
}

#[test]
fn file_errors_name_the_place_without_the_text() {
    for (name, clouds, cloud, wanted) in [
        (
            "several",
            CLOUDS,
            None,
            "has several clouds: select one with adapter.openstack.cloud of the chart (--cloud) or OS_CLOUD: prod, test",
        ),
        (
            "unknown",
            CLOUDS,
            Some("staging"),
            "has no cloud staging, only prod, test: select one with adapter.openstack.cloud",
        ),
        ("no password", CLOUDS, Some("prod"), "clouds.prod.auth.password: is missing"),
        ("no clouds", "cloud: {}", None, "has no section clouds"),
        ("nothing", "", None, "has no section clouds"),
        ("no YAML", "clouds:\n  a: hunter2\n b: hunter2\n", None, "invalid YAML in line"),
        ("a list", "- hunter2", None, "must be YAML with a section clouds"),
    ] {
        let bed = Bed::new(&[("clouds.yaml", clouds)]);
        let fault = bed.read(cloud).expect_err(name);
        assert!(
            fault.contains(&format!("clouds.yaml: {wanted}")) && !fault.contains("hunter2"),
            "{name}: {fault}"
        );
    }
    let none = Source::find(None, Some(Path::new("/nowhere/clouds.yaml")), &Environment::default());
    let fault = none.expect("is named").read(&Given::default()).expect_err("does not exist");
    assert!(fault.starts_with("/nowhere/clouds.yaml: No such file"), "{fault}");
}

#[test]
fn source_is_files_or_the_environment() {
    let bed = Bed::new(&[("clouds.yaml", CLOUDS)]);
    let file = bed.clouds().display().to_string();
    let address = ("OS_AUTH_URL", "https://cloud.example/v3");
    let found =
        |cloud: Option<&str>, variables: &[(&str, &str)]| Source::find(cloud, None, &environment(variables));
    assert!(matches!(found(None, &[address]), Ok(Source::Environment(_))));
    assert!(matches!(found(None, &[address, ("OS_CLOUD", "")]), Ok(Source::Environment(_))));
    let named = |cloud: &str| Files {
        clouds: bed.clouds(),
        secure: bed.clouds().with_file_name("secure.yaml"),
        cloud: Some(cloud.to_owned()),
    };
    let variables = [address, ("OS_CLOUD", "test"), ("OS_CLIENT_CONFIG_FILE", &file)];
    assert_eq!(found(None, &variables), Ok(Source::Files(named("test"))));
    assert_eq!(found(Some("prod"), &variables), Ok(Source::Files(named("prod"))), "flags take precedence");

    let home = Bed::new(&[]);
    let folder = home.0.path().join("openstack");
    fs::create_dir(&folder).expect("a created folder");
    let home = ("XDG_CONFIG_HOME", home.0.path().to_str().expect("text"));
    let fault = found(Some("prod"), &[home]).expect_err("no file exists");
    assert!(fault.contains("/openstack/clouds.yaml") && fault.contains("--clouds-file"), "{fault}");
    fs::write(folder.join("clouds.yaml"), CLOUDS).expect("a written file");
    assert!(
        matches!(found(Some("prod"), &[home]), Ok(Source::Files(files)) if files.clouds == folder.join("clouds.yaml"))
    );
}
