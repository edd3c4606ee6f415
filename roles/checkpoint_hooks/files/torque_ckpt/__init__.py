"""Hooks that pbs_mom calls to run, checkpoint and restart a job.

Python >= 3.6, standard library only. One room per concern:

contract    what pbs_mom passes, position by position (the only place that knows)
config      the hooks' configuration file
identity    which process is this job, really
privilege   becoming the job's owner, with or without capabilities
store       directories and publication of images
manifest    what an image is and whether it is whole
engines     the checkpoint engines behind one interface
supervisor  living as the session leader of a job
report      one sentence for people, one line for the system log
"""
