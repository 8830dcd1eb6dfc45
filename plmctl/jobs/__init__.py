"""One engine under sweeps, studies and chains, which plan jobs and read what these have left.

job.py        a job: an ordinary command, its config, and the jobs whose runs it reads
key.py        the settings that decide the result of a job, as 16 digits
journal.py    a folder of jobs: the state of each, and a log of events
work.py       one job inside the process that runs it, by us or by a Hydra launcher
command.py    ... as an ordinary command, resumed where its run has a checkpoint
runners.py    run the jobs here, in processes side by side, or through a Hydra launcher
sweep.py      `-m`: all jobs composed and checked, then run, and their table
sweep_job.py  one job of a sweep: its folder, its earlier run, its record
"""
