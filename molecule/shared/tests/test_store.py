"""The store after site.yml, looked at from the host that made it."""
testinfra_hosts = ["ansible://checkpoint_store"]


def test_store(host, settings):
    store = host.file(settings["checkpoint_store_path"])
    assert store.is_directory
    assert (store.user, store.group) == (settings.get("checkpoint_store_owner", "root"), settings["checkpoint_store_group"])
    assert store.mode == int(settings["checkpoint_store_mode"], 8)


def test_users_have_their_own_directories(host, settings):
    assert settings["checkpoint_store_users"]
    for user in settings["checkpoint_store_users"]:
        directory = host.file("%s/%s" % (settings["checkpoint_store_path"], user))
        assert (directory.is_directory, directory.user, directory.mode) == (True, user, 0o711)


def test_nothing_is_left_of_the_round_trips(host, settings):
    names = host.check_output("find %s -mindepth 1 -not -name .ckpt-torque-store -printf '%%P\\n'", settings["checkpoint_store_path"])
    assert sorted(names.splitlines()) == sorted(settings["checkpoint_store_users"])
