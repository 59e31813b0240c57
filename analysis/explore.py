# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: tags,-all
#     formats: ipynb,py:percent
#     notebook_metadata_filter: kernelspec,jupytext,-jupytext.text_representation.jupytext_version
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Explore a trace
#
# One trace of a program that uses a GPU, from its ranges down to the kernels of one request. Each cell calls
# functions of launchgap; the commands at the end give the same numbers without a notebook. All times are
# **as traced**: a profiler stretches them, so none is a latency.
#
# `explore.py` beside this file is the same notebook as plain Python; jupytext keeps the two in step.

# %% [markdown]
# ## What to look at
#
# Edit the settings below, or set `LAUNCHGAP_TRACE`, `LAUNCHGAP_RANGE` and so on, which come first. Paths
# count from the root of the checkout.

# %%
import os
import sys
from pathlib import Path

here = Path.cwd()  # the notebook's folder in Jupyter, the root of the checkout elsewhere
ROOT = here.parent if (here / "explore.ipynb").is_file() else here
os.chdir(ROOT)
sys.path.insert(0, str(ROOT))

# %%
from analysis.commands.notebook import setting, show_errors_in_one_line

show_errors_in_one_line()

# %% tags=["parameters"]
REFERENCE = "profiles/reference/gpt2-float32-p50-m1024"
BUNDLED = f"{REFERENCE}/eager.node.sqlite.gz"
BUNDLED_GRAPH = f"{REFERENCE}/graph.node.sqlite.gz"

TRACE = setting("TRACE", BUNDLED)  # .sqlite(.gz), .nsys-rep, .json(.gz)
RANGE = setting("RANGE", "")  # '': launchgap's requests, else the range that looks most like a request
DOMAIN = setting("DOMAIN", "")  # its NVTX domain, needed only where several domains have the range
REQUEST = setting("REQUEST", "")  # number of the request, from 0; '': the one with the median range
GRAPH = setting("GRAPH", BUNDLED_GRAPH if TRACE == BUNDLED else "")  # its graph, traced by node; '': none
GRAPH_RANGE = setting("GRAPH_RANGE", "")  # the range of a request in GRAPH; '': as in TRACE

# %%
import pandas as pd
from IPython.display import Image, Markdown, display

from analysis.commands import ledger_view as ledgers
from analysis.commands import match_view as matches
from analysis.commands import notebook, ranges
from analysis.commands.about import about_trace
from analysis.commands.facts import content_facts, origin_facts
from analysis.commands.words import markdown, shown
from analysis.figures import launches_by_api, render_png
from analysis.figures_ledger import ledger_waterfall
from analysis.figures_request import kernel_bars, request_timeline
from analysis.host_ledger import HOST_PARTS
from analysis.ledger import GPU_PARTS
from analysis.overview import work_of
from analysis.request_picture import request_picture
from analysis.request_work import only_request
from analysis.tables import CountedTrace, TraceLabel, kernels_table, launches_table
from contract import TraceMode

pd.set_option("display.max_rows", 30, "display.max_colwidth", 64, "display.html.use_mathjax", False)
pd.set_option("display.float_format", "{:,.3f}".format)

# %% [markdown]
# ## The trace
#
# What recorded it, how much is in it, and what its numbers cannot be trusted for.

# %%
path = Path(TRACE).expanduser()
trace, findings = notebook.open_trace(path)
work = work_of(trace)
facts = origin_facts(trace, about_trace(trace)) | content_facts(work)
display(pd.Series(facts, name=shown(path.name)).to_frame())
display(Markdown(notebook.bullets(findings)))

# %% [markdown]
# ## Its ranges
#
# Ranges that look like a request, best first.

# %%
display(ranges.proposals(ranges.ranges_table(work)))

# %% [markdown]
# Where ipywidgets is installed this is a menu: choose, then run the cells below it. Else `RANGE` decides.

# %%
chosen = notebook.chosen_range(trace, path, RANGE, DOMAIN)
range_menu = notebook.menu("range", notebook.range_choices(trace, chosen), chosen)
display(range_menu)

# %% [markdown]
# ## Its requests
#
# One row for each: kernels, copies, launches, and its time on both sides.

# %%
requests = notebook.requests_in(trace, path, range_menu.value)
name, domain = requests.selector.name, requests.selector.domain
display(ranges.range_view(trace, requests.selector).instances)

# %% [markdown]
# Choose one here, or by `REQUEST`; then run the cells below.

# %%
number = notebook.request_number(REQUEST, requests)
request_menu = notebook.menu("request", notebook.request_choices(requests), number)
display(request_menu)

# %%
request = request_menu.value
title = shown(f"{path.name}: {name} {request}", 90)
label = TraceLabel("graph" if requests.replays else "eager", TraceMode.NODE)
one = [CountedTrace(label, only_request(requests.attributed, request), has_gpu=True)]

# %% [markdown]
# ## Timeline of the request
#
# The CUDA calls of the thread that the range is on, what the GPU ran for it, and when no device did anything.

# %%
picture = request_picture(trace, requests.attributed, request, title)
display(Image(render_png(request_timeline(picture), dpi=110), alt="Timeline of the request"))

# %%
between_us = (0, picture.end_us / 20)  # a part of it; edit and run again
display(Image(render_png(request_timeline(picture, between_us), dpi=110), alt="Timeline of a part of it"))

# %% [markdown]
# ## Its launches
#
# By CUDA call. A gap between many launches and little time on the GPU is what a CUDA graph closes.

# %%
launches = launches_table(one)
display(launches[["api", "kind", "calls_per_request", "launch_api_us_per_request", "mean_us", "max_us"]])

# %%
kernels = kernels_table(one)
calls = dict(zip(launches["api"], launches["calls_per_request"], strict=True))
count = float(kernels["calls_per_request"].sum()) if len(kernels) else None
figure = launches_by_api({label.strategy: calls}, {label.strategy: count}, title)
display(Image(render_png(figure, dpi=110), alt="Launches by CUDA call"))

# %% [markdown]
# ## Its kernels
#
# By name, most time first; the share is of the time of all kernels of the request.

# %%
shown_columns = ["kernel", "calls_per_request", "total_us_per_request", "mean_us", "share_percent"]
display(Markdown(f"{count or 0:,.0f} kernels of {len(kernels)} names"))
display(kernels[shown_columns])

# %%
display(Image(render_png(kernel_bars(kernels, title), dpi=110), alt="GPU time by kernel"))

# %% [markdown]
# ## Its ledgers
#
# The range from both sides, in parts that add up to it: on the GPU head, busy, gaps and tail; on the host
# CUDA calls by what they are for, and the rest, which is Python and the framework. docs/explain.md has the
# formulas.

# %%
both = ledgers.ledgers_of(requests)
chosen_column = {"median_request_us": f"request_{request}_us"}
display(ledgers.pooled(both.gpu, GPU_PARTS, request).rename(columns=chosen_column))
display(ledgers.pooled(both.host, HOST_PARTS, request).rename(columns=chosen_column))

# %% [markdown]
# The request with the median range as steps from its start to its end, above the graph's if `GRAPH` is given.

# %%
graph_path = Path(GRAPH).expanduser() if GRAPH else None
asked = ledgers.Request(name, domain, graph_path, GRAPH_RANGE or None, latency=None)
view, waterfall = ledgers.ledger_view(path, asked)
display(Image(render_png(ledger_waterfall(waterfall), dpi=110), alt="The GPU's ledger as steps"))
display(Markdown(notebook.bullets(view.findings)))

# %% [markdown]
# ## Does the graph run the same kernels?
#
# Only with `GRAPH`, a trace recorded with `--cuda-graph-trace=node`.

# %%
if graph_path:
    match, _ = matches.match_view(path, graph_path, matches.Request(name, GRAPH_RANGE or None, domain))
    display(Markdown(markdown(str(match.facts["verdict"]))))
    for section in match.sections[:2]:
        table = section.table.drop(columns=list(section.long), errors="ignore")
        display(Markdown(f"**{section.title}**"), table)

# %% [markdown]
# ## Where to go on

# %%
display(Markdown("```\n" + "\n".join(notebook.next_commands(path, requests.selector, graph_path)) + "\n```"))
