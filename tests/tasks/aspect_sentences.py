"""Sentences in the layout of SemEval-2014 task 4, for tests."""

XML = """<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<sentences>
  <sentence id="813">
    <text>The rice &amp; tea were good, but the waiter was rude.</text>
    <aspectTerms>
      <aspectTerm term="rice &amp; tea" polarity="positive" from="4" to="14"/>
      <aspectTerm term="waiter" polarity="negative" from="34" to="40"/>
    </aspectTerms>
    <aspectCategories>
      <aspectCategory category="food" polarity="positive"/>
      <aspectCategory category="service" polarity="negative"/>
    </aspectCategories>
  </sentence>
  <sentence id="814">
    <text>We came at noon.</text>
    <aspectCategories><aspectCategory category="anecdotes/miscellaneous" polarity="neutral"/>
    </aspectCategories>
  </sentence>
  <sentence id="815">
    <text>The menu is long and dull.</text>
    <aspectTerms><aspectTerm term="menu" polarity="conflict" from="4" to="8"/></aspectTerms>
    <aspectCategories><aspectCategory category="food" polarity="conflict"/></aspectCategories>
  </sentence>
</sentences>
"""
CSV = (
    "id,Sentence,Aspect Term,polarity,from,to\n"
    '813,"The rice & tea were good, but the waiter was rude.",rice & tea,positive,4,14\n'
    '813,"The rice & tea were good, but the waiter was rude.",waiter,negative,34,40\n'
    "815,The menu is long and dull.,menu,conflict,4,8\n"
)
