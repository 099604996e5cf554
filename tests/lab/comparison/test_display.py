"""What many tasks at once show."""

import io

from rich.console import Console

from fedns.core.history import Record
from fedns.lab.comparison.display import Board, LineBoard, LiveBoard, SayingDisplay, board_for


def console(terminal):
    return Console(file=io.StringIO(), force_terminal=terminal, width=100)


def test_the_board_suits_the_output():
    assert type(board_for(console(True), quiet=True)) is Board
    assert type(board_for(console(False), quiet=False)) is LineBoard
    assert type(board_for(console(True), quiet=False)) is LiveBoard


def test_lines_count_what_is_done():
    screen = console(False)
    board = LineBoard(screen)
    with board.open(2):
        board.working("a", "round 3")
        board.finished("a")
        board.finished("b [c]")
    assert screen.file.getvalue() == "[1/2] a\n[2/2] b [c]\n"


def test_the_live_board_names_what_runs():
    screen = console(True)
    board = LiveBoard(screen)
    with board.open(1):
        board.working("phishing [iid]", "fedns, round 3")
        board._progress.refresh()
        board.finished("phishing [iid]")
    assert "phishing [iid]: fedns, round 3" in screen.file.getvalue()
    assert "done: phishing [iid]" in screen.file.getvalue()


def test_a_comparison_tells_how_far_it_is_but_not_every_round():
    said = []
    display = SayingDisplay(said.append)
    for number in range(50):
        display.moved("fedns", 1, Record(number, 0, 0.0, 0, 0, 1.0, 1e-3, 1.0))
    assert said == ["fedns, trial 2, round 0, gap 1.0e-03"]
