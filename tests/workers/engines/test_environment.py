"""What an engine sees of the worker's environment."""

from workers.engines.environment import engine_environment


def test_only_what_is_on_the_list():
    worker = {"PATH": "/opt/bin", "HOME": "/root", "CUDA_HOME": "/cuda", "REDIS_URL": "x", "https_proxy": "x"}
    seen = engine_environment(worker, {}, "launch-1")
    assert {"PATH": "/opt/bin", "HOME": "/root", "CUDA_HOME": "/cuda"}.items() <= seen.items()
    assert not {"REDIS_URL", "https_proxy"} & set(seen)


def test_what_the_command_asks_for_wins():
    seen = engine_environment({"CUDA_VISIBLE_DEVICES": "7"}, {"CUDA_VISIBLE_DEVICES": ""}, "launch-1")
    assert seen["CUDA_VISIBLE_DEVICES"] == ""


def test_no_command_can_take_another_launch_id():
    assert engine_environment({}, {"LLMGW_LAUNCH_ID": "other"}, "launch-1")["LLMGW_LAUNCH_ID"] == "launch-1"
